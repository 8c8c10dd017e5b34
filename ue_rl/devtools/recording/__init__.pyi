from ue_rl.devtools.recording.engine import record_engine as record_engine
from ue_rl.devtools.recording.game import ReplayedGame as ReplayedGame
from ue_rl.devtools.recording.trainer import replay_trainer as replay_trainer
from ue_rl.devtools.recording.transport import RecordingTransport as RecordingTransport
from ue_rl.protocol.traces.reading import Trace as Trace
from ue_rl.protocol.traces.writing import TraceWriter as TraceWriter
