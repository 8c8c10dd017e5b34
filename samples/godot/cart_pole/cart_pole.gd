# A cart on a rail (GrooveJoint2D) with a pole on a hinge (PinJoint2D); Godot's rigid bodies do the physics.
#
# Observation: cart position, cart velocity, pole angle (0 is upright), pole angular velocity, each scaled to about
# [-1, 1]. Action: one number in [-1, 1], the force on the cart. Reward: 1 per tick upright. The episode ends
# when the pole is 12 degrees off or the cart 2.4 m away (terminated), or after 500 ticks (truncated). 100 px are 1 m.
#
# It reads and writes Physics2DServer instead of the nodes: a node learns of a new state only with the next tick.
#
# The same seed and actions give the same run to the bit. Three things in the scene are there for that:
# - the pole weighs 0.125 kg: Godot takes the mass times and through the area of the body's bounding box when it works
#   out the inertia, in its first tick, at whatever angle the pole then has; only a power of two survives that exactly;
# - the pole comes after the cart: Godot goes through a body's constraints by memory address, and begins with the body
#   that came into the tree last. The pole has one constraint, so addresses decide nothing;
# - the cart's shape is disabled (nothing collides here), so that cart and pole are no pair of shapes: that would be a
#   further constraint.
extends Node2D

const FORCE = 1000.0  # px kg/s^2: 10 N
const TRACK = 240.0  # px
const LIMIT = 12.0 * PI / 180.0
const MAX_TICKS = 500
const SPEED_SCALE = 300.0  # px/s
const TURN_SCALE = 3.0  # rad/s
const START = 0.05  # how far from 0 an episode may begin, in parts of the scaled range ..
const START_X = 0.5  # .. but the cart anywhere in the middle half: a policy must meet the track's ends to learn them

var first_seed = 0
var _random = RandomNumberGenerator.new()
var _ticks = 0

onready var _cart = $Cart.get_rid()
onready var _pole = $Pole.get_rid()
onready var _space = get_world_2d().space


func _ready() -> void:
	_random.seed = first_seed
	rl_reset(-1)


# What the trainer is told.
static func describe(bridge: Node) -> void:
	bridge.obs_size = 4
	bridge.act_size = 1
	bridge.observation_names = ["x", "speed", "angle", "turn"]
	bridge.action_names = ["push"]


# In heuristic mode: the arrow keys push; without them a script does.
func rl_heuristic(seen: Array) -> Array:
	var push = Input.get_action_strength("ui_right") - Input.get_action_strength("ui_left")
	return [push if push != 0.0 else clamp(6.0 * seen[2] + seen[3] + 0.2 * seen[0] + 0.3 * seen[1], -1.0, 1.0)]


# A new episode; `episode_seed` >= 0 fixes how it begins.
func rl_reset(episode_seed: int) -> void:
	if episode_seed >= 0:
		_random.seed = episode_seed
	_ticks = 0
	rl_apply([0.0])
	# A joint remembers the impulses of its last tick and takes them as its first guess. A new episode must not
	# begin with the push of the last one: the joints are made anew, with the bodies where the scene has them.
	_place(0.0, 0.0, 0.0, 0.0)
	_join(false)
	_join(true)
	var x = _random.randf_range(-START_X, START_X) * TRACK
	var v = _random.randf_range(-START, START) * SPEED_SCALE
	var angle = _random.randf_range(-START, START) * LIMIT
	var turn = _random.randf_range(-START, START) * TURN_SCALE
	_place(x, v, angle, turn)


func rl_apply(action: Array) -> void:
	$Cart.applied_force = Vector2(clamp(action[0], -1.0, 1.0) * FORCE, 0.0)


func rl_observe() -> Array:
	var cart = Physics2DServer.body_get_state(_cart, Physics2DServer.BODY_STATE_TRANSFORM)
	var speed = Physics2DServer.body_get_state(_cart, Physics2DServer.BODY_STATE_LINEAR_VELOCITY)
	var pole = Physics2DServer.body_get_state(_pole, Physics2DServer.BODY_STATE_TRANSFORM)
	var turn = Physics2DServer.body_get_state(_pole, Physics2DServer.BODY_STATE_ANGULAR_VELOCITY)
	return [cart.origin.x / TRACK, speed.x / SPEED_SCALE, pole.get_rotation() / LIMIT, turn / TURN_SCALE]


# After a tick: [reward, terminated, truncated].
func rl_result(observation: Array) -> Array:
	_ticks += 1
	var fallen = abs(observation[0]) > 1.0 or abs(observation[2]) > 1.0
	return [0.0 if fallen else 1.0, fallen, _ticks >= MAX_TICKS and not fallen]


# Stops this env's physics, and only this env's: it has a space of its own.
func rl_freeze(frozen: bool) -> void:
	Physics2DServer.space_set_active(_space, not frozen)


func _place(x: float, v: float, angle: float, turn: float) -> void:
	var hinge = Vector2(x, 0.0)
	# The pole's middle is 50 px from the hinge; it moves with the cart and turns around the hinge.
	var arm = Vector2(0.0, -50.0).rotated(angle)
	var set = Physics2DServer
	set.body_set_state(_cart, set.BODY_STATE_TRANSFORM, Transform2D(0.0, hinge))
	set.body_set_state(_cart, set.BODY_STATE_LINEAR_VELOCITY, Vector2(v, 0.0))
	set.body_set_state(_cart, set.BODY_STATE_ANGULAR_VELOCITY, 0.0)
	set.body_set_state(_pole, set.BODY_STATE_TRANSFORM, Transform2D(angle, hinge + arm))
	set.body_set_state(_pole, set.BODY_STATE_LINEAR_VELOCITY, Vector2(v - turn * arm.y, turn * arm.x))
	set.body_set_state(_pole, set.BODY_STATE_ANGULAR_VELOCITY, turn)


func _join(joined: bool) -> void:
	$Groove.node_b = NodePath("../Cart" if joined else "")
	$Hinge.node_b = NodePath("../Pole" if joined else "")
