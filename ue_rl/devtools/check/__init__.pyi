# The names of this package, each imported when it is first used (ue_rl/system/lazy.py).
from ue_rl.devtools.check.mistakes import MISTAKES as MISTAKES
from ue_rl.devtools.check.mistakes import Mistake as Mistake
from ue_rl.devtools.check.report import CheckReport as CheckReport
from ue_rl.devtools.check.report import Finding as Finding
from ue_rl.devtools.check.report import Verdict as Verdict
from ue_rl.devtools.check.running import Options as Options
from ue_rl.devtools.check.running import check as check
