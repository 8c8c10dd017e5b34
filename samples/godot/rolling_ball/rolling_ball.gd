# A ball on a platform without a fence rolls after a target that moves, around pillars that it sees with rays.
#
# Observation, 16 numbers: position (2) and velocity (2) of the ball, the way to the target (2), the target's velocity
# (2), each in parts of the platform or of 4 m/s; and how far a ray goes in eight directions, in parts of 3 m.
# Action: the torque around two axes. Reward: 1 for each target that is reached, which then comes up elsewhere; 0.1
# for each metre nearer; -1 for falling off, which ends the episode. It is truncated after 150 actions of 4 ticks.
extends "res://fresh_world.gd"

const HALF = 5.0  # m, of the platform
const TORQUE = 1.2  # N m
const SPEED = 4.0
const RAY = 3.0
const REACH = 0.6
const TARGET_SPEED = 0.8
const MAX_ACTIONS = 150
const PILLARS = 2  # the collision layer

var _ball: RigidBody
var _torque = Vector3()
var _target = Vector2()
var _target_velocity = Vector2()
var _distance = 0.0
var _actions = 0


static func describe(bridge: Node) -> void:
	bridge.obs_size = 16
	bridge.act_size = 2
	bridge.ticks_per_action = 4
	bridge.action_space = "BOX(-1:1,-1:1)"
	bridge.observation_space = "BOX(" + "-inf:inf,".repeat(8) + "0:1,".repeat(7) + "0:1)"
	bridge.action_names = ["torque/x", "torque/z"]


# In heuristic mode: the arrow keys roll; without them a script does, which sees no pillars.
func rl_heuristic(seen: Array) -> Array:
	var push = Vector2(
		Input.get_action_strength("ui_right") - Input.get_action_strength("ui_left"),
		Input.get_action_strength("ui_down") - Input.get_action_strength("ui_up"))
	if push == Vector2():
		push = 2.0 * HALF * Vector2(seen[4], seen[5]) - SPEED * Vector2(seen[2] - seen[6], seen[3] - seen[7])
	return [clamp(push.x, -1.0, 1.0), clamp(push.y, -1.0, 1.0)]


func _begin() -> void:
	_actions = 0
	_torque = Vector3()
	_ball = arena.get_node("Ball")
	var taken = [_spot(4.0)]
	for pillar in arena.get_node("Pillars").get_children():
		var spot = _spot(3.5)
		while _is_near(spot, taken):
			spot = _spot(3.5)
		taken.append(spot)
		pillar.translation = Vector3(spot.x, 0.75, spot.y)
	_ball.translation = Vector3(taken[0].x, 0.3, taken[0].y)
	_new_target(taken[0])


func rl_apply(action: Array) -> void:
	_torque = Vector3(clamp(action[1], -1.0, 1.0), 0.0, -clamp(action[0], -1.0, 1.0)) * TORQUE


func _physics_process(delta: float) -> void:
	if _frozen:
		return
	PhysicsServer.body_apply_torque_impulse(_ball.get_rid(), _torque * delta)
	_target += _target_velocity * delta
	for axis in 2:
		if abs(_target[axis]) > 4.0:
			_target_velocity[axis] = -sign(_target[axis]) * abs(_target_velocity[axis])


func rl_observe() -> Array:
	var ball = position_of(_ball)
	var speed = velocity_of(_ball)
	var seen = [
		ball.x / HALF, ball.z / HALF, speed.x / SPEED, speed.z / SPEED,
		(_target.x - ball.x) / HALF, (_target.y - ball.z) / HALF, _target_velocity.x / SPEED, _target_velocity.y / SPEED]
	var space = get_world().direct_space_state
	for i in 8:
		var end = ball + Vector3(RAY, 0.0, 0.0).rotated(Vector3.UP, i * PI / 4.0)
		var hit = space.intersect_ray(ball, end, [], PILLARS)
		seen.append(1.0 if hit.empty() else ball.distance_to(hit.position) / RAY)
	return seen


func rl_result(_observation: Array) -> Array:
	_actions += 1
	var ball = position_of(_ball)
	var place = Vector2(ball.x, ball.z)
	var distance = _target.distance_to(place)
	var reward = 0.1 * (_distance - distance)
	_distance = distance
	if distance < REACH:
		reward += 1.0
		_new_target(place)
	var fallen = ball.y < 0.0
	return [reward - (1.0 if fallen else 0.0), fallen, _actions >= MAX_ACTIONS and not fallen]


func _new_target(ball: Vector2) -> void:
	_target = _spot(4.0)
	_target_velocity = Vector2(TARGET_SPEED, 0.0).rotated(_random.randf_range(-PI, PI))
	_distance = _target.distance_to(ball)


func _spot(half: float) -> Vector2:
	return Vector2(_random.randf_range(-half, half), _random.randf_range(-half, half))


func _is_near(spot: Vector2, others: Array) -> bool:
	for other in others:
		if spot.distance_to(other) < 1.5:
			return true
	return false
