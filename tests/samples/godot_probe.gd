# A game without physics that shows what the bridge hands over: run with godot3-server --path samples/godot -s THIS.
# Observation: ticks since the reset, the sum of the last action, gravity, the seed's last digits; of env 1 a
# tenth more.
extends SceneTree


class Env:
	extends Node

	var bridge
	var index = 0
	var ticks = 0
	var delta = 0.0
	var last = []
	var frozen = false
	var episode_seed = -1
	var gravity = 9.8
	var options = {}
	var values = {}  # of the parameters that were set

	func _physics_process(step: float) -> void:
		if not frozen:
			ticks += 1
			delta = step

	func rl_reset(given: int) -> void:
		episode_seed = given
		ticks = 0
		last = []

	func rl_apply(action: Array) -> void:
		last = action

	func rl_observe() -> Array:
		if options.has("short"):
			return [1.0]
		var sum = 0.0
		for x in last:
			sum += x
		return [float(ticks), sum + 0.1 * index, gravity, float(episode_seed % 1000)]

	func rl_result(_observation: Array) -> Array:
		return [sqrt(-1.0) if options.has("nan") else 0.5, options.has("end"), ticks >= 60 or options.has("cut")]

	func rl_freeze(on: bool) -> void:
		frozen = on

	func rl_options(given: Dictionary) -> void:
		options = given

	func rl_set(name: String, value: float) -> void:
		values[name] = value
		gravity = value if name == "gravity" else gravity

	func rl_mask() -> Array:
		return [true, false, true, true, true, true, index == 0]

	func rl_heuristic(seen: Array) -> Array:
		return [0.5, -1.0, 1.0, 0.0, 5.0 if seen[0] >= 9.0 else -1.0]  # 5 is no choice

	func rl_info() -> Dictionary:
		var info = {"action": last, "options": options, "delta": delta}
		if options.has("numbers"):
			info["values"] = values
			info["place"] = Vector2(0.1, -4e-7)
			info["path"] = PoolRealArray([0.1])
			info["text"] = "a\tb\"\\"
			info["beyond"] = {"all": [INF]}
			info["nothing"] = [null, NAN]
		return info


func _initialize() -> void:
	var bridge = load("res://addons/ue_rl/ue_rl_bridge.gd").new()
	bridge.action_space = "DICT(move:BOX(-1:1)[2],fire:DISCRETE(2),mode:MULTI_DISCRETE(2,-1:1))"
	bridge.observation_space = "BOX(0:inf,-10:10,0:20,-1:999)"
	bridge.observation_names = ["ticks", "sum", "gravity[m/s^2]", "the seed"]
	bridge.action_names = ["x", "y", "fire", "gear", "turn"]
	bridge.parameters = {"gravity": [9.8, 0.0, 20.0], "p".repeat(400): [0.0, 0.0, 1.0]}
	bridge.parameters["push"] = [0.05, 0.0, 0.1]
	bridge.parameters["wide"] = [0.0, -INF, INF]
	bridge.ticks_per_action = 3
	bridge.lock_step = bridge.argument("lock-step", "1") == "1"
	bridge.connect("seen", self, "_show")
	var envs = []
	for i in 2:
		var env = Env.new()
		env.index = i
		env.add_to_group("envs")
		root.add_child(env)
		envs.append(env)
	if bridge.lock_step:
		root.add_child(bridge)
		bridge.start(envs, 4, 5)
	else:  # as a node of a scene
		bridge.env_group = "envs"
		bridge.obs_size = 4
		bridge.act_size = 5
		root.add_child(bridge)


func _show(_env: int, text: String) -> void:
	print(text)
