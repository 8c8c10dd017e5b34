# ue_rl_bridge.gd: lets a trainer drive this game over TCP, in lock-step. Copy this one file into your project.
#
#     var bridge = preload("res://addons/ue_rl/ue_rl_bridge.gd").new()
#     add_child(bridge)
#     bridge.start(envs, 4, 1)          # the env nodes, numbers per observation, numbers per action
#
# An env is any object with
#     rl_reset(episode_seed: int)       # a new episode; a seed < 0: none was given
#     rl_apply(action: Array)           # `act_size` floats; they hold for the tick that follows
#     rl_observe() -> Array             # `obs_size` floats, right at once, after a reset too
#     rl_result(observation) -> Array   # once per tick: [reward: float, terminated: bool, truncated: bool]
#     rl_freeze(frozen: bool)           # optional: stop just this env's physics. Without it a tick for
#                                       # one env is a tick for all; a lone env needs none.
#
# Lock-step: _physics_process waits for a request, applies it, and returns; Godot does one physics tick; the
# next _physics_process answers. While nobody asks, the tree is paused. Run the game with --fixed-fps 60 (your
# physics rate): Godot then ticks as fast as requests come. Arguments: --port=7777 --host=127.0.0.1
#
# The protocol (both wirings, seeds, truncation) is ue_rl's docs/protocol.md. Whatever does not fit it ends the
# session with a line on stderr; the next trainer can connect then.
extends Node

const CONFIG = "CONFIG:OBS=%d;ACT=%d;ENV_TYPE=MULTI;ENV_COUNT=%d;VERSION=1;CHANNEL=ANY;ACT_SPACE=%s;FEATURES=SEED,TRUNC"
const SPIN_USEC = 60  # spin for so long after the last message: the shortest sleep takes as long
const BREATHE_USEC = 50000  # hand the frame back to Godot so often while the trainer is busy learning
const GATHER_USEC = 400  # per-env sockets: wait so long for the other envs' lines before a tick
const MAX_FLOAT32 = 3.4028235e38
const MAX_INTEGER = "9223372036854775807"  # 2^63 - 1: Godot's own int() makes another number of a greater one

var action_space = "BOX(-1:1)"  # set it before start(); "DISCRETE(3)" and the others of docs/protocol.md

var _server = TCP_Server.new()
var _envs = []
var _obs_size = 0
var _act_size = 0
var _links = []  # the session's sockets: [the first] or [admin, env 0, env 1, ..]; empty without a trainer
var _shared = false  # the first socket has spoken: it carries everything
var _asked = {}  # env -> true: answered after this tick
var _frozen = []
var _last_news = 0
var _line_limit = 0


# One socket and the text that has come but was not yet given out.
class Link:
	const CHUNK = 65536  # bytes taken at once; what else has come waits in the system, which then slows its sender

	var peer: StreamPeerTCP
	var text = ""
	var searched = 0  # so many characters of `text` hold no newline

	func _init(p: StreamPeerTCP) -> void:
		peer = p
		peer.set_no_delay(true)  # else Nagle's algorithm may hold an answer back for 40 ms

	# The next line, or null while there is none; empty lines are skipped. More is taken from the socket only where
	# no whole line is left over. What can never become a request comes back as a line that _parse refuses: bytes
	# that are not UTF-8 or a NUL, which would end a String early, and a line that is too long.
	func read_line(limit: int):
		var end = text.find("\n", searched)
		if end < 0:
			var count = int(min(peer.get_available_bytes(), CHUNK))
			if count > 0:
				var chunk = peer.get_data(count)[1].get_string_from_utf8()
				if chunk.length() != count:
					return "(bytes that are no text)"
				searched = text.length()
				text = text + chunk if searched > 0 else chunk.lstrip(" \t\r\n")
				end = text.find("\n", searched)
		if (text.length() if end < 0 else end) > limit:
			return "(no newline within %d bytes)" % limit
		if end < 0:
			searched = text.length()
			return null
		var line = text.left(end)
		text = text.substr(end + 1).lstrip(" \t\r\n")
		searched = 0
		return line

	# The end of a socket shows only where nothing is left to read.
	func discard() -> void:
		var _bytes = peer.get_data(int(min(peer.get_available_bytes(), CHUNK)))

	# Has it sent what was not yet looked at?
	func has_news() -> bool:
		return peer.get_available_bytes() > 0

	func alive() -> bool:
		return peer.get_status() == StreamPeerTCP.STATUS_CONNECTED


# The value of --name=value on the command line.
static func argument(name: String, default: String) -> String:
	for text in OS.get_cmdline_args():
		if text.begins_with("--" + name + "="):
			return text.substr(name.length() + 3)
	return default


func start(envs: Array, obs_size: int, act_size: int) -> void:
	_envs = envs
	_obs_size = obs_size
	_act_size = act_size
	_line_limit = 1024 + envs.size() * (65536 + 48 * act_size)
	for _env in envs:
		_frozen.append(false)
	var port = int(argument("port", "7777"))
	var host = argument("host", "127.0.0.1")
	if _server.listen(port, host) != OK:
		printerr("ue_rl: cannot listen on %s:%d; is another game using the port?" % [host, port])
		get_tree().quit(1)
		return
	print("ue_rl: %d envs wait for a trainer on %s:%d" % [envs.size(), host, port])
	pause_mode = PAUSE_MODE_PROCESS
	process_priority = -1000  # before the game's own nodes: they see the new action in the same tick
	get_tree().paused = true


func _physics_process(_delta: float) -> void:
	if not _server.is_listening():
		return
	if not _asked.empty():
		var envs = _asked.keys()
		_asked.clear()
		_answer(envs, true)
	var entered = OS.get_ticks_usec()
	while not _tick_is_due():
		var quiet = OS.get_ticks_usec() - _last_news
		if OS.get_ticks_usec() - entered > BREATHE_USEC:
			break
		# Short sleeps first: on a busy machine the trainer may need this very core.
		if quiet > SPIN_USEC or not _wired():
			if quiet > 2000:
				_drop_the_dead()
			OS.delay_usec(1 if quiet < 2000 else 50 if quiet < 20000 else 1000)
	get_tree().paused = _asked.empty()
	if not _asked.empty():
		_freeze_all_but_asked()


func _freeze_all_but_asked() -> void:
	for env in _envs.size():
		var freeze = not _asked.has(env)
		if _frozen[env] != freeze and _envs[env].has_method("rl_freeze"):
			_envs[env].rl_freeze(freeze)
			_frozen[env] = freeze


# Takes what has come; true when the envs in _asked should move.
func _tick_is_due() -> bool:
	if _links.size() == 1:
		var line = _links[0].read_line(_line_limit)
		if line:
			_shared = true
			_take(line, 0, _envs.size())
		if _shared:
			return not _asked.empty()
	if not _wired() and _server.is_connection_available():
		_accept()
	if not _wired():
		return false  # as in the Unreal plugin: silence until all env sockets are there
	for env in _envs.size():
		if not _asked.has(env) and not _links.empty():
			var line = _links[env + 1].read_line(_line_limit)
			if line:
				_take(line, env, 1)
	var waited = OS.get_ticks_usec() - _last_news
	return _asked.size() == _envs.size() or (not _asked.empty() and waited > GATHER_USEC)


# Is the wiring settled, and all sockets there?
func _wired() -> bool:
	return _shared or _links.size() > _envs.size()


# Takes all that wait, and at once: no more than 8 can, and a trainer's system tries a refused one a second later.
func _accept() -> void:
	while not _wired() and _server.is_connection_available():
		if _links.size() == 1 and _links[0].has_news():
			return  # to be read first: a line means the shared wiring, and a dead trainer's last words hide its end
		if _links.size() > 1:
			_links[0].discard()  # the admin socket has nothing to say
		if not _links.empty() and not _links[0].alive():
			_end_session()  # else a dead trainer's successor would become its env socket
		_links.append(Link.new(_server.take_connection()))
		_last_news = OS.get_ticks_usec()
		if _links.size() == 1:
			_send(_links[0], CONFIG % [_obs_size, _act_size, _envs.size(), action_space])


# One line: `count` envs from `first` on may be meant; nothing is done before all of it is understood.
func _take(line: String, first: int, count: int) -> void:
	_last_news = OS.get_ticks_usec()
	var resets = {}
	var actions = {}
	for row in line.split("||"):
		var ask = _parse(row)
		if ask.has("fault"):
			_refuse(ask.fault, row)
			return
		var env = ask.get("ENV", first if count == 1 else -1)
		if env < first or env >= first + count:
			_refuse("ENV is missing or not one of this socket's", row)
			return
		if resets.has(env) or actions.has(env):
			_refuse("an env asked twice", row)
			return
		if ask.ACT == null:
			resets[env] = ask.get("SEED", -1)
		else:
			actions[env] = ask.ACT
	for env in actions:
		_envs[env].rl_apply(actions[env])
		_asked[env] = true
	for env in resets:
		_envs[env].rl_reset(resets[env])
	if not resets.empty():
		_answer(resets.keys(), false)  # a reset takes no time: the other envs are in mid-episode


# {"ACT": [floats] or null for a reset, "ENV": int, "SEED": int}, the latter two only if given; or {"fault": why}.
func _parse(row: String) -> Dictionary:
	var ask = {}
	for field in row.split(";"):
		var at = field.find("=")
		var key = field.left(at).strip_edges().to_upper()
		var value = field.substr(at + 1).strip_edges()
		if at < 1:
			return {"fault": "a field without key=value"}
		if ask.has(key):
			return {"fault": key + " given twice"}
		if key == "ENV" or key == "SEED":
			if not value.is_valid_integer() or value.begins_with("-") or value.begins_with("+"):
				return {"fault": key + " is not a number of 0 or more"}
			var digits = value.lstrip("0")
			var longer = digits.length() - MAX_INTEGER.length()
			if longer > 0 or (longer == 0 and digits > MAX_INTEGER):
				return {"fault": key + " is beyond 2^63 - 1"}
			ask[key] = int(digits)
		elif key == "ACT" and value.to_upper() == "RESET":
			ask[key] = null
		elif key == "ACT":
			var numbers = []
			for text in value.split(","):
				var number = _read_number(text.strip_edges())
				if number == null or abs(number) > MAX_FLOAT32:
					return {"fault": "ACT holds something that is not a finite number"}
				numbers.append(number)
			if numbers.size() != _act_size:
				return {"fault": "ACT holds %d numbers, not %d" % [numbers.size(), _act_size]}
			ask[key] = numbers
	return ask if ask.has("ACT") else {"fault": "no ACT"}


# The number in `text`, null where it is none. Godot's is_valid_float() takes "1e" and refuses "1E0", and its float()
# ends the process on a power of 2^31 and reads others modulo 2^32: nine digits of a power are as good as more.
static func _read_number(text: String):
	var at = text.findn("e")
	if at < 0:
		return float(text) if text.is_valid_float() else null
	var mantissa = text.left(at)
	var power = text.substr(at + 1)
	if not mantissa.is_valid_float() or not power.is_valid_integer():
		return null
	var sign_of_power = "-" if power.begins_with("-") else ""
	var number = float(mantissa + "e" + sign_of_power + "0" + power.lstrip("+-0").left(9))
	return 0.0 if is_nan(number) else number  # Godot's 0e999 is zero times infinity


# Sends the states of `envs`; after a tick with its result, after a reset without.
func _answer(envs: Array, ticked: bool) -> void:
	var rows = PoolStringArray()
	for env in envs:
		var observation = _envs[env].rl_observe()
		var result = _envs[env].rl_result(observation) if ticked else [0.0, false, false]
		var numbers = PoolStringArray()
		for x in observation:
			numbers.append(_number(x))
		var row = "OBS=%s;REW=%s;DONE=%d;ENV=%d" % [
			numbers.join(","), _number(result[0]), int(result[1] or result[2]), env]
		if result[2] and not result[1]:
			row += ";TRUNC=1"
		rows.append(row)
	if _shared:
		_send(_links[0], rows.join("||"))
		return
	for i in rows.size():
		if _links.empty():
			return
		_send(_links[envs[i] + 1], rows[i])


# Text that reads back as the same float32. Godot 3's str() keeps six digits, too few; "%f" has any number of
# decimals up to 16, so a small number is written as mantissa and power of ten.
func _number(x: float) -> String:
	if abs(x) >= 0.001 or x == 0.0 or is_nan(x):
		return "%.12f" % x
	var power = 0
	while abs(x) < 1.0:
		x *= 1000.0
		power -= 3
	return "%.9fe%d" % [x, power]


func _send(link: Link, line: String) -> void:
	if link.peer.put_data((line + "\n").to_ascii()) != OK:
		_end_session()


func _drop_the_dead() -> void:
	if _links.size() > 1:
		_links[0].discard()
	for link in _links:
		if not link.alive():
			_end_session()
			return


func _refuse(why: String, row: String) -> void:
	printerr("ue_rl: %s: '%s'. The trainer is disconnected." % [why, row.left(120)])
	_end_session()


func _end_session() -> void:
	for link in _links:
		link.peer.disconnect_from_host()
	_links.clear()
	_asked.clear()
	_shared = false
