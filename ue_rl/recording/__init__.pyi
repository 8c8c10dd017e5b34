from ue_rl.recording.engine import record_engine as record_engine
from ue_rl.recording.game import ReplayedGame as ReplayedGame
from ue_rl.recording.reading import Trace as Trace
from ue_rl.recording.trainer import replay_trainer as replay_trainer
from ue_rl.recording.transport import RecordingTransport as RecordingTransport
from ue_rl.recording.writing import TraceWriter as TraceWriter
