# A cart on a rail catches balls that fall through pegs; the balls hit walls, pegs and each other.
#
# Observation, 16 numbers: place and speed of the cart; of each of the two balls, the lower one first, how far it is to
# the side of the cart, its height, and its velocity (2); the places of the three pegs (2 each); in parts of the field or
# of 8 m/s. Action: one of three, push to the left, nothing, push to the right, for 4 ticks. Reward: 1 for each ball that
# is caught, -1 for each that is missed, which is then thrown again; -0.01 for each metre between the cart and the lower
# ball. The third ball that is missed ends the episode, which is truncated after 200 actions.
extends "res://fresh_world.gd"

const HALF = 3.0  # m, of the field
const TOP = 6.0
const SPEED = 8.0
const FORCE = 40.0  # N
const TRAY = 0.7  # half of the cart
const LIVES = 3
const MAX_ACTIONS = 200

var _cart: RigidBody
var _balls = []
var _pegs = []  # as they stand in the observation
var _force = 0.0
var _caught = 0  # in this action
var _missed = 0
var _lost = 0  # in this action
var _actions = 0


static func describe(bridge: Node) -> void:
	bridge.obs_size = 16
	bridge.act_size = 1
	bridge.ticks_per_action = 4
	bridge.action_space = "DISCRETE(3)"
	bridge.action_names = ["push"]


func _begin() -> void:
	_force = 0.0
	_caught = 0
	_missed = 0
	_actions = 0
	_cart = arena.get_node("Cart")
	_balls = arena.get_node("Balls").get_children()
	_pegs = []
	_cart.translation = Vector3(_random.randf_range(-2.0, 2.0), 0.1, 0.0)
	for peg in arena.get_node("Pegs").get_children():
		peg.translation.x += _random.randf_range(-0.7, 0.7)
		_pegs += [peg.translation.x / HALF, peg.translation.y / TOP]
	for i in 2:
		_balls[i].translation = _start(TOP * (1.0 + i))
		_balls[i].linear_velocity = _throw()


func rl_apply(action: Array) -> void:
	_force = FORCE * (action[0] - 1)
	_caught = 0
	_lost = 0


func _physics_process(delta: float) -> void:
	if _frozen:
		return
	PhysicsServer.body_apply_central_impulse(_cart.get_rid(), Vector3(_force * delta, 0.0, 0.0))
	# A ball that is about to hit the cart, or was missed, goes up again.
	var cart = position_of(_cart).x
	for ball in _balls:
		var at = position_of(ball)
		if at.y < 0.8 and abs(at.x - cart) < TRAY:
			_caught += 1
			move(ball, _start(TOP), _throw())
		elif at.y < 0.0:
			_missed += 1
			_lost += 1
			move(ball, _start(TOP), _throw())


func rl_observe() -> Array:
	var cart = position_of(_cart).x
	var seen = [cart / HALF, velocity_of(_cart).x / SPEED]
	var lower_first = _balls.duplicate()
	if position_of(_balls[1]).y < position_of(_balls[0]).y:
		lower_first.invert()
	for ball in lower_first:
		var at = position_of(ball)
		var speed = velocity_of(ball)
		seen += [(at.x - cart) / HALF, at.y / TOP, speed.x / SPEED, speed.y / SPEED]
	return seen + _pegs


func rl_result(observation: Array) -> Array:
	_actions += 1
	var over = _missed >= LIVES
	return [_caught - _lost - 0.01 * HALF * abs(observation[2]), over, _actions >= MAX_ACTIONS and not over]


func _start(height: float) -> Vector3:
	return Vector3(_random.randf_range(-2.5, 2.5), height, 0.0)


func _throw() -> Vector3:
	return Vector3(_random.randf_range(-2.0, 2.0), 0.0, 0.0)
