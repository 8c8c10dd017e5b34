# An env whose physics remembers nothing, for tasks in 3D: the node Arena holds the bodies.
#
# Godot's 3D physics (Bullet) keeps contacts, impulses and a tree of boxes from tick to tick, and a body its inertia as
# it was turned last. A new episode must not begin with what the last one left: it gets new bodies in a new space,
# always in the same order.
extends Spatial

var first_seed = 0
var arena = null
var _random = RandomNumberGenerator.new()
var _frozen = false

onready var _template = $Arena


func _ready() -> void:
	remove_child(_template)
	_random.seed = first_seed
	rl_reset(-1)


func _exit_tree() -> void:
	_template.free()


# A new episode; `episode_seed` >= 0 fixes how it begins.
func rl_reset(episode_seed: int) -> void:
	if episode_seed >= 0:
		_random.seed = episode_seed
	if arena != null:
		arena.free()
	get_viewport().world = World.new()
	rl_freeze(_frozen)
	arena = _template.duplicate()
	_begin()
	add_child(arena)


# Sets up the episode: the bodies in `arena`, which are not in the tree yet.
func _begin() -> void:
	pass


# Stops this env's physics, and only this env's.
func rl_freeze(frozen: bool) -> void:
	_frozen = frozen
	PhysicsServer.space_set_active(get_world().space, not frozen)


# For a body that is in the tree: its node would tell the server of a new place only with the next tick.
static func move(body: RigidBody, position: Vector3, velocity: Vector3) -> void:
	var set = PhysicsServer
	body.transform.origin = position
	set.body_set_state(body.get_rid(), set.BODY_STATE_TRANSFORM, body.transform)
	set.body_set_state(body.get_rid(), set.BODY_STATE_LINEAR_VELOCITY, velocity)


# A node learns of its new state with the next tick, the server has it at once.
static func position_of(body: RigidBody) -> Vector3:
	return PhysicsServer.body_get_state(body.get_rid(), PhysicsServer.BODY_STATE_TRANSFORM).origin


static func velocity_of(body: RigidBody) -> Vector3:
	return PhysicsServer.body_get_state(body.get_rid(), PhysicsServer.BODY_STATE_LINEAR_VELOCITY)
