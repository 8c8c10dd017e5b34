"""Numbers for who operates: served to Prometheus, and in JSON logs, under the same names."""

from ue_rl.devtools.metrics.names import METRICS as METRICS
from ue_rl.devtools.metrics.names import Metrics as Metrics
