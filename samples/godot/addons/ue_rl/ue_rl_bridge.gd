# UeRlBridge: lets a trainer drive this game over TCP. Copy the folder addons/ue_rl into your project.
#
#     var bridge = preload("res://addons/ue_rl/ue_rl_bridge.gd").new()
#     bridge.action_space = "DISCRETE(3)"
#     add_child(bridge)
#     bridge.start(envs, 4, 1)          # the env nodes, numbers per observation, numbers per action
#
# or put the node into a scene, set it up in the inspector, and the env nodes into the group named in `env_group`.
#
# An env is any object with
#     rl_reset(episode_seed: int)       # a new episode; a seed < 0: none was given
#     rl_apply(action: Array)           # `act_size` numbers (choices are ints); they hold for the ticks that follow
#     rl_observe() -> Array             # `obs_size` floats, right at once, after a reset too
#     rl_result(observation) -> Array   # when the action has ended: [reward: float, terminated: bool, truncated: bool]
# and, only if it wants them,
#     rl_freeze(frozen: bool)           # stop just this env's physics. Without it a tick for one env is one for all
#     rl_options(options: Dictionary)   # comes before rl_reset, where a trainer sent OPTIONS
#     rl_set(name: String, value: float)  # a parameter has changed, see `parameters`
#     rl_mask() -> Array                # a bool for each choice: is it legal now?
#     rl_info() -> Dictionary           # what else the trainer should see after a step; {}: nothing
#     rl_heuristic(observation: Array) -> Array  # plays in heuristic mode (ue_rl_heuristic.gd), or with `demo`
#
# Lock-step: _physics_process waits for a request, applies it, and returns; Godot does a physics tick; the next
# _physics_process answers. While nobody asks, the tree is paused. Run the game with --fixed-fps 60 (your physics
# rate): Godot then ticks as fast as requests come. Without lock-step the game goes on in real time, a request is
# applied in the next tick, and nothing is waited for.
#
# The protocol is ue_rl's docs/protocol.md. Whatever does not fit it ends the session with a line on stderr, which
# the trainer gets, too; then the next one is served.
extends Node

const Link = preload("ue_rl_link.gd")
const Text = preload("ue_rl_text.gd")
const Grammar = preload("ue_rl_grammar.gd")
const Calls = preload("ue_rl_calls.gd")
const Json = preload("ue_rl_json.gd")
const Heuristic = preload("ue_rl_heuristic.gd")

signal seen(env, text)  # in heuristic mode, after each step and reset: what the env's agent sees

const SPIN_USEC = 60  # spin for so long after the last message: the shortest sleep takes as long
const BREATHE_USEC = 50000  # hand the frame back to Godot so often while the trainer is busy learning
const GATHER_USEC = 400  # per-env sockets: wait so long for the other envs' lines before a tick
const CONNECT_USEC = 900000000  # a trainer's next env socket may take so long: its workers import libraries first
const MOST_WAITING = 16  # trainers that were told BUSY
const MOST_LINES = 64  # of one connection at once, where they ask for no tick: a flood must not stop the game
const MOST_UNSENT = 1 << 20  # bytes, and two lines more: a trainer that does not read its answers is dropped then

export var host = "127.0.0.1"  # "0.0.0.0" opens the game to the network. --host=.. on the command line comes first
export var port = 7777  # --port=..
export var token_file = ""  # of a secret that trainers must prove to know; --token-file=..
export var lock_step = true
export var ticks_per_action = 1  # an action holds for so many physics ticks
export var repeatable = true  # announce SEED: the same seed and actions give the same episode
export var action_space = "BOX(-1:1)"  # "DISCRETE(3)" and the others: docs/protocol.md, section 3
export var observation_space = ""  # bounds, if they are known: "BOX(-1:1,0:inf,..)"
export(PoolStringArray) var observation_names = PoolStringArray()  # for people: "speed[m/s]"
export(PoolStringArray) var action_names = PoolStringArray()
export var parameters = {}  # what a trainer may set: {"gravity": [9.8, 0.0, 20.0]}, value now, lowest, highest
export var env_group = ""  # start by itself with the nodes of this group and the two sizes below
export var heuristic = false  # rl_heuristic() of the envs plays, and nobody is listened to; --heuristic=1
export var demo = false  # rl_heuristic() of the envs plays while a trainer records it; --demo=1
export var obs_size = 0
export var act_size = 0

var _server = TCP_Server.new()
var _envs = []
var _grammar = null
var _calls = null
var _json = Json.new()
var _player = null  # in heuristic mode
var _observations = {}  # env -> what it saw last, where `demo` is on
var _taken = {}  # env -> the action that it took
var _handshake = ""
var _line_limit = 0
var _links = []  # the session's connections: [the first] or [the first, env 0, env 1, ..]; empty without a trainer
var _outside = []  # connections that have not proved yet that they know the token
var _token = PoolByteArray()
var _waiting = []  # connections of other trainers, who were told so
var _shared = false  # the first connection carries everything
var _began = 0  # the session, in usec
var _asked = {}  # env -> so many ticks until it is answered
var _numbers = {}  # env -> how the answer to its last request ends, see Grammar.number
var _frozen = []
var _last_news = 0
var _looked = 0
var halted = false  # by PAUSE=1
var _tick_usec = 0  # lock-step: no tick is shorter; 0: as fast as it goes
var _next_tick = 0
var _physics_fps = Engine.iterations_per_second


# The value of --name=value on the command line.
static func argument(name: String, default: String) -> String:
	for text in OS.get_cmdline_args():
		if text.begins_with("--" + name + "="):
			return text.substr(name.length() + 3)
	return default


func _ready() -> void:
	if env_group != "":
		call_deferred("_start_group")  # the envs are ready when the scene is


func _start_group() -> void:
	start(get_tree().get_nodes_in_group(env_group), obs_size, act_size)


# Listens. `envs` stay the same from now on.
func start(envs: Array, numbers_per_observation: int, numbers_per_action: int) -> void:
	_envs = envs
	obs_size = numbers_per_observation
	act_size = numbers_per_action
	_grammar = Grammar.new(action_space, act_size)
	_grammar.parameters = parameters
	_grammar.options = envs[0].has_method("rl_options")
	_calls = Calls.new(self, envs, _grammar)
	for _env in envs:
		_frozen.append(false)
	demo = argument("demo", str(int(demo))) == "1"
	_handshake = _describe()
	var address = argument("host", host)
	if address != "*" and not address.is_valid_ip_address():  # a name, such as localhost
		address = IP.resolve_hostname(address, IP.TYPE_IPV4)
	var number = int(argument("port", str(port)))
	var fault = _grammar.fault()
	var secret = argument("token-file", token_file)
	if fault == "" and secret != "":
		var file = File.new()
		if file.open(secret, File.READ) == OK:
			_token = file.get_as_text().strip_edges().to_utf8()
		if _token.size() < 16:
			fault = "no token of 16 bytes or more in " + secret
	if fault == "" and argument("heuristic", str(int(heuristic))) == "1":
		_player = Heuristic.new(self, envs, Array(observation_names))
	elif fault == "" and _server.listen(number, address) != OK:
		fault = "cannot listen on %s:%d; is another game using the port?" % [address, number]
	if fault != "":
		printerr("ue_rl: " + fault)
		get_tree().quit(1)
		return
	if _player == null:
		print("ue_rl: %d envs wait for a trainer on %s:%d" % [envs.size(), address, number])
	pause_mode = PAUSE_MODE_PROCESS
	process_priority = -1000  # before the game's own nodes: they see the new action in the same tick
	get_tree().paused = lock_step


func _describe() -> String:
	var features = PoolStringArray(["TRUNC", "ERROR", "SEQ", "TIME_SCALE", "PAUSE"])
	if repeatable:
		features.append("SEED")
	if not lock_step:
		features.append("REALTIME")
	for feature in ["OPTIONS", "INFO", "MASK"]:
		if _envs[0].has_method("rl_" + feature.to_lower()) or (demo and feature == "INFO"):
			features.append(feature)
	if demo:
		features.append("DEMO")
	var wide = "INFO" in features or "OPTIONS" in features or not parameters.empty()
	var row = 48 * int(max(obs_size + 1, act_size)) + (65536 if wide else 64) + _grammar.mask_size
	_line_limit = 1024 + _envs.size() * row
	var fields = PoolStringArray(["OBS=%d;ACT=%d;ENV_TYPE=MULTI;ENV_COUNT=%d" % [obs_size, act_size, _envs.size()]])
	fields.append_array(["VERSION=1;CHANNEL=ANY", "ACT_SPACE=" + action_space, "FEATURES=" + features.join(",")])
	if observation_space != "":
		fields.append("OBS_SPACE=" + observation_space)
	if not observation_names.empty():
		fields.append("OBS_NAMES=" + Text.names(observation_names))
	if not action_names.empty():
		fields.append("ACT_NAMES=" + Text.names(action_names))
	if not parameters.empty():
		fields.append("PARAMS=" + _calls.describe())
	return "CONFIG:" + fields.join(";")


# -- time


func _physics_process(_delta: float) -> void:
	if _player == null and not _server.is_listening():
		return
	var ended = []
	for env in _asked:
		_asked[env] -= 1
		if _asked[env] == 0:
			ended.append(env)
	for env in ended:
		_asked.erase(env)
	if not ended.empty():
		_answer(ended, true)
	var running = not _asked.empty()
	var due = _poll()
	if lock_step:
		var entered = OS.get_ticks_usec()
		while not (due or running or OS.get_ticks_usec() - entered > BREATHE_USEC):
			var quiet = OS.get_ticks_usec() - _last_news
			if quiet > SPIN_USEC or not _wired():
				# Short sleeps first: on a busy machine the trainer may need this very core.
				OS.delay_usec(1 if quiet < 2000 else 50 if quiet < 20000 else 1000)
			due = _poll()
		if _tick_usec > 0 and not _asked.empty():
			_pace()
	get_tree().paused = _asked.empty() and (lock_step or halted)
	_freeze_all_but_asked()


func _pace() -> void:
	var now = OS.get_ticks_usec()
	if now < _next_tick:
		OS.delay_usec(_next_tick - now)
	_next_tick = int(max(now, _next_tick)) + _tick_usec


func _freeze_all_but_asked() -> void:
	if not _envs[0].has_method("rl_freeze") or (lock_step and _asked.empty()):
		return  # nothing moves in a paused tree
	for env in _envs.size():
		var freeze = lock_step and not _asked.has(env)
		if _frozen[env] != freeze:
			_envs[env].rl_freeze(freeze)
			_frozen[env] = freeze


# How fast game time goes, 1 is real time; why not, or "".
func scale_time(scale: float) -> String:
	if scale < 0.01 or scale > 1000.0:
		return "the time scale is from 0.01 to 1000"
	_tick_usec = int(1e6 / (_physics_fps * scale))
	if not lock_step:
		# Both: the time scale alone would make each tick longer, which is other physics.
		Engine.iterations_per_second = int(max(1, round(_physics_fps * scale)))
		Engine.time_scale = Engine.iterations_per_second / float(_physics_fps)
	return ""


# -- connections


# Takes what has come, without waiting; true when the envs in _asked should move.
func _poll() -> bool:
	if _player != null:
		return _play()
	var now = OS.get_ticks_usec()
	if not _wired() or now - _looked > BREATHE_USEC:
		_looked = now
		_look_around(now)
	if _links.empty():
		return false
	for _i in MOST_LINES:
		if _links.empty() or (_shared and _asked.size() == _envs.size()):
			break
		var line = _links[0].read_line(_line_limit)
		if not _links[0].flush():
			_end_session()
		elif line != null:
			_take_from_first(line)
		elif _links.size() == 1 and _links[0].blank:
			_shared = true
		if line == null:
			break
	if _shared or not _wired():
		return not _asked.empty()
	for env in _envs.size():
		if not _asked.has(env) and not _links.empty():
			var link = _links[env + 1]
			if not link.flush():
				_end_session()
				return false
			var line = link.read_line(_line_limit)
			if line != null:
				_take(line, env, 1)
	var waited = OS.get_ticks_usec() - _last_news
	return _asked.size() == _envs.size() or (not _asked.empty() and waited > GATHER_USEC)


func _play() -> bool:
	var idle = []
	for env in _envs.size():
		if not _asked.has(env):
			idle.append(env)
	if not idle.empty():
		_take(_player.request(idle, Text), 0, _envs.size())
	return not _asked.empty()


func _take_from_first(line: String) -> void:
	if _grammar.is_call(line):
		_last_news = OS.get_ticks_usec()
		if _asked.empty():
			_send(_links[0], _calls.answer(line) + _grammar.number(line))
		else:
			_refuse("a call while a request is open", line)
	elif _links.size() == 1:
		_shared = true
		_take(line, 0, _envs.size())
	# Beside env sockets the first connection has nothing else to say.


# Is the wiring settled, and all sockets there?
func _wired() -> bool:
	return _shared or _links.size() > _envs.size()


# Who has gone, and who has come? Takes all that wait at once, as no more than 8 can.
func _look_around(now: int) -> void:
	for link in _links:
		if not link.alive():
			_end_session()
			break
	for link in _waiting.duplicate():
		if not link.alive():
			_waiting.erase(link)
	if _links.empty() and not _waiting.empty():
		_admit(_waiting.pop_front())
	while _server.is_connection_available():
		if _links.size() == 1 and not _shared and _links[0].has_news():
			return  # to be read first: a line means the shared wiring, and a dead trainer's last words hide its end
		if _links.size() > 1 and not _wired():
			_links[0].discard()
		if not _links.empty() and not _links[0].alive():
			_end_session()  # else a dead trainer's successor would become its env socket
		var link = Link.new(_server.take_connection())
		if _token.empty():
			_come_in(link, now)
		else:
			_outside.append(link)
			link.ask(now)
	for link in _outside.duplicate():
		var said = link.proved(_token, now)
		if said != "":
			_outside.erase(link)
			if said == "AUTH":
				_come_in(link, now)
			else:
				printerr("ue_rl: a connection from %s was refused: %s" % [link.host, said])
				var _told = link.send("ERROR=" + said.percent_encode(), MOST_UNSENT)
				link.close()
	if _links.size() > 1 and not _wired() and now - _last_news > CONNECT_USEC:
		_refuse("not all env sockets were opened", "%d of %d" % [_links.size() - 1, _envs.size()])


func _come_in(link, now: int) -> void:
	if _wired() or (not _links.empty() and link.host != _links[0].host):
		_tell_busy(link, now)
	else:
		_admit(link)


func _admit(link) -> void:
	_last_news = OS.get_ticks_usec()
	_links.append(link)
	if _links.size() == 1:
		_began = _last_news
		_send(link, _handshake)


func _tell_busy(link, now: int) -> void:
	var since = "%.1f" % ((now - _began) / 1e6)
	var told = link.send("BUSY;SINCE=%s;PEER=%s" % [since, _links[0].host], MOST_UNSENT)
	if told and _waiting.size() < MOST_WAITING:
		_waiting.append(link)
	else:
		link.close()


func _send(link, line: String) -> void:
	if not link.send(line, MOST_UNSENT + 2 * _line_limit):
		if link.alive():
			printerr("ue_rl: the trainer does not read its answers. It is disconnected.")
		_end_session()


func _refuse(why: String, row: String) -> void:
	printerr("ue_rl: %s: '%s'. The trainer is disconnected." % [why, row.left(120)])
	if _player != null:
		get_tree().quit(1)
	if not _links.empty():
		var _told = _links[0].send("ERROR=" + ("%s: '%s'" % [why, row.left(120)]).percent_encode(), MOST_UNSENT)
	_end_session()


func _end_session() -> void:
	for link in _links:
		link.close()
	_links.clear()
	_asked.clear()
	_shared = false
	halted = false


# -- requests and answers


# One line: `count` envs from `first` on may be meant; nothing is done before all of it is understood.
func _take(line: String, first: int, count: int) -> void:
	_last_news = OS.get_ticks_usec()
	var resets = {}
	var actions = {}
	var rows = line.split("||")
	for i in rows.size():
		var text = rows[i]
		var ask = _grammar.row(text, i + 1 == rows.size())
		if ask.has("fault"):
			_refuse(ask.fault, text)
			return
		var env = ask.get("ENV", first if count == 1 else -1)
		if env < first or env >= first + count:
			_refuse("ENV is missing or not one of this socket's", text)
			return
		if resets.has(env) or actions.has(env) or _asked.has(env):
			_refuse("an env asked twice", text)
			return
		if ask.ACT == null:
			resets[env] = ask
		else:
			actions[env] = ask.ACT
	for env in actions.keys() + resets.keys():
		_numbers[env] = _grammar.number(line)
	for env in actions:
		if demo:
			_taken[env] = _envs[env].rl_heuristic(_observations[env])
			actions[env] = _taken[env]
		_envs[env].rl_apply(actions[env])
		_asked[env] = ticks_per_action
	for env in resets:
		var ask = resets[env]
		if ask.has("SET") and not parameters.empty():
			_calls.set_values(ask.SET, [env])
		if ask.has("OPTIONS"):
			_envs[env].rl_options(ask.OPTIONS)
		_envs[env].rl_reset(ask.get("SEED", -1))
	if not resets.empty():
		_answer(resets.keys(), false)  # a reset takes no time: the other envs are in mid-episode


# Sends the states of `envs`; after an action with its result, after a reset without.
func _answer(envs: Array, acted: bool) -> void:
	var lines = {}  # the end of a line -> the rows before it: those of one request
	for env in envs:
		var observation = _envs[env].rl_observe()
		if not observation is Array or observation.size() != obs_size:
			_refuse("rl_observe() must return %d numbers" % obs_size, "env %d: %s" % [env, observation])
			return
		var result = _envs[env].rl_result(observation) if acted else [0.0, false, false]
		_observations[env] = observation
		if _player != null:
			_player.see(env, observation, result, acted)
			continue
		var row = _row(env, observation, result, acted)
		var end = _numbers[env]
		if _shared:
			lines[end] = (lines[end] + "||" if lines.has(end) else "") + row
		elif not _links.empty():
			_send(_links[env + 1], row + end)
	for end in lines:
		if not _links.empty():
			_send(_links[0], lines[end] + end)


func _row(env: int, observation: Array, result: Array, acted: bool) -> String:
	var numbers = PoolStringArray()
	for x in observation:
		numbers.append(Text.number(x))
	var row = "OBS=%s;REW=%s;DONE=%d;ENV=%d" % [
		numbers.join(","), Text.number(result[0]), int(result[1] or result[2]), env]
	if result[2] and not result[1]:
		row += ";TRUNC=1"
	if _envs[env].has_method("rl_mask"):
		row += ";MASK="
		for legal in _envs[env].rl_mask():
			row += "1" if legal else "0"
	if acted:
		var info = _envs[env].rl_info() if _envs[env].has_method("rl_info") else {}
		if demo:
			info = info.duplicate()  # the game may keep it
			info["demo_action"] = _taken[env]
		if not info.empty():
			row += ";INFO=" + _json.object(info).percent_encode()
	return row
