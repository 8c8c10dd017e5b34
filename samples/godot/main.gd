# Builds --envs=N cart-poles and hands them to the bridge.
extends Node

const Bridge = preload("res://addons/ue_rl/ue_rl_bridge.gd")
const CartPole = preload("res://cart_pole/cart_pole.tscn")


func _ready() -> void:
	var bridge = Bridge.new()
	var envs = []
	for i in int(bridge.argument("envs", "8")):
		# A world of its own for each env: nothing can collide with the neighbours, and one env's physics can
		# stand still while another's moves.
		var world = Viewport.new()
		world.world_2d = World2D.new()
		world.render_target_update_mode = Viewport.UPDATE_DISABLED
		var env = CartPole.instance()
		env.first_seed = i
		world.add_child(env)
		add_child(world)
		envs.append(env)
	add_child(bridge)
	bridge.start(envs, 4, 1)
