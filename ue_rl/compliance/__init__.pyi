# The names of this package, each imported when it is first used (ue_rl/system/lazy.py).
from ue_rl.compliance.mistakes import MISTAKES as MISTAKES
from ue_rl.compliance.mistakes import Mistake as Mistake
from ue_rl.compliance.report import Finding as Finding
from ue_rl.compliance.report import Outcome as Outcome
from ue_rl.compliance.report import Report as Report
from ue_rl.compliance.running import Options as Options
from ue_rl.compliance.running import check as check
