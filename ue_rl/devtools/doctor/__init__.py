"""What is wrong with this installation, or with the way to an engine: `ue-rl doctor`."""

from ue_rl.devtools.doctor.checks import diagnose as diagnose
from ue_rl.devtools.doctor.rows import FAULTS as FAULTS
from ue_rl.devtools.doctor.rows import DoctorRow as DoctorRow
from ue_rl.devtools.doctor.rows import DoctorVerdict as DoctorVerdict
