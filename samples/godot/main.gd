# Builds --envs=N envs of --task=NAME and hands them to the bridge.
extends Node

const Bridge = preload("res://addons/ue_rl/ue_rl_bridge.gd")
const TASKS = {
	"cart_pole": preload("res://cart_pole/cart_pole.tscn"),
	"rolling_ball": preload("res://rolling_ball/rolling_ball.tscn"),
	"catcher": preload("res://catcher/catcher.tscn"),
}


func _ready() -> void:
	var bridge = Bridge.new()
	var task = bridge.argument("task", "cart_pole")
	if not TASKS.has(task):
		printerr("--task is one of %s, not %s" % [PoolStringArray(TASKS.keys()).join(", "), task])
		get_tree().quit(1)
		return
	var first_seed = int(bridge.argument("seed", "0"))
	var envs = []
	for i in int(bridge.argument("envs", "8")):
		# A world of its own for each env: nothing can collide with the neighbours, and one env's physics can
		# stand still while another's moves.
		var world = Viewport.new()
		world.world_2d = World2D.new()
		world.world = World.new()
		world.render_target_update_mode = Viewport.UPDATE_DISABLED
		var env = TASKS[task].instance()
		env.first_seed = first_seed + i
		world.add_child(env)
		add_child(world)
		envs.append(env)
	envs[0].describe(bridge)
	bridge.lock_step = bridge.argument("lock-step", "1") == "1"
	bridge.repeatable = bridge.lock_step  # in real time the same seed and actions give another episode
	add_child(bridge)
	if bridge.argument("show", "0") == "1":  # with --heuristic=1: on the terminal, too
		bridge.connect("seen", self, "_show")
	bridge.start(envs, bridge.obs_size, bridge.act_size)


func _show(_env: int, text: String) -> void:
	print(text)
