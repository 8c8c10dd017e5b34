# Carts on a line: keep each near 0. The action pushes, and an episode has 100 steps.
#   godot3-server --path samples/godot -s "$PWD/samples/fifty_lines/carts.gd" --fixed-fps 60 --port=7777
extends SceneTree

const Bridge = preload("res://addons/ue_rl/ue_rl_bridge.gd")


class Cart:
	var x = 0.0
	var speed = 0.0
	var steps = 0
	var random = RandomNumberGenerator.new()

	func rl_reset(episode_seed: int) -> void:
		if episode_seed >= 0:
			random.seed = episode_seed
		x = random.randf_range(-1.0, 1.0)
		speed = 0.0
		steps = 0

	func rl_apply(action: Array) -> void:  # one step of the game; with physics: set a force here
		speed += 0.1 * action[0]
		x += speed
		steps += 1

	func rl_observe() -> Array:  # after a reset, too
		return [x, speed]

	func rl_result(_observation) -> Array:  # [reward, terminated, truncated]; the trainer begins the next episode
		var lost = abs(x) > 3.0
		return [1.0 - abs(x), lost, steps >= 100 and not lost]


func _init() -> void:  # in a game: _ready() of the main scene's node, and add_child(bridge)
	var carts = []
	for i in 4:
		carts.append(Cart.new())
		carts[i].random.seed = i
	var bridge = Bridge.new()
	root.add_child(bridge)
	bridge.start(carts, 2, 1)
