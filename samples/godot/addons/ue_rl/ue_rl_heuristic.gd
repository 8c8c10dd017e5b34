# Heuristic mode of ue_rl_bridge.gd: in the trainer's place a person or a script plays, by rl_heuristic() of the envs.
#
#     rl_heuristic(observation: Array) -> Array   # what the env's agent does now: `act_size` numbers
#
# Each env's last line, such as "env 0: x=0.5 speed=-1 | reward 0.1, return 2.3, step 12", goes out with the bridge's
# signal `seen`, and env 0's onto the screen.
extends Reference

var _bridge
var _envs
var _names
var _label = Label.new()
var _observations = {}  # env -> what it saw last; without an entry its next request is a reset
var _steps = {}
var _returns = {}


func _init(bridge, envs: Array, names: Array) -> void:
	_bridge = bridge
	_envs = envs
	_names = names
	var layer = CanvasLayer.new()
	layer.add_child(_label)
	bridge.add_child(layer)


# A request for these envs as a trainer would write it: the one place where an action comes from in this mode.
func request(idle: Array, text) -> String:
	var rows = PoolStringArray()
	for env in idle:
		var act = "RESET"
		if _observations.has(env):
			var numbers = PoolStringArray()
			for x in _envs[env].rl_heuristic(_observations[env]):
				numbers.append(text.number(float(x)))
			act = numbers.join(",")
		rows.append("ACT=%s;ENV=%d" % [act, env])
	return rows.join("||")


# `acted`: after a step; otherwise an episode has begun.
func see(env: int, observation: Array, result: Array, acted: bool) -> void:
	_steps[env] = _steps[env] + 1 if acted else 0
	_returns[env] = _returns[env] + result[0] if acted else 0.0
	_observations[env] = observation
	var line = "env %d:" % env
	for i in observation.size():
		line += " %s=%s" % [_names[i] if i < _names.size() else "obs[%d]" % i, stepify(observation[i], 0.0001)]
	var ended = ", done" if result[1] else ", truncated" if result[2] else ""
	var numbers = [stepify(result[0], 0.0001), stepify(_returns[env], 0.0001), _steps[env], ended]
	line += " | reward %s, return %s, step %d%s" % numbers
	if result[1] or result[2]:
		_observations.erase(env)
	if env == 0:
		_label.text = line
	_bridge.emit_signal("seen", env, line)
