# Foraging, played by an agent of ue_rl.plugins.arena: each tick is posted to /observe, and the tool that is answered is done.
#
#   ue-rl arena serve --agent forager=rules
#   godot3-server --path samples/godot foraging/foraging.tscn --port=5000 --seed=1
extends Spatial

const SIZE = 20.0  # the field reaches so far each way from the middle
const SIGHT = 15.0
const REACH = 1.5
const MAX_SPEED = 2.0  # units a tick
const BURNS = 2.5
const DAMAGE = 5.0

var http = HTTPClient.new()
var forager = Spatial.new()
var berries = []
var fires = []
var health = 100.0
var collected = 0
var damage = 0.0
var tick = 0
var last_result = null


func _ready() -> void:
	var rng = RandomNumberGenerator.new()
	rng.seed = int(argument("seed", "0"))
	add_child(forager)
	for i in 10:
		berries.append(placed("berry_%d" % i, rng, 0.0))
	for i in 6:
		fires.append(placed("fire_%d" % i, rng, BURNS + 1))
	if not reach_server():
		printerr("nobody answers at port %s" % argument("port", "5000"))
		get_tree().quit(1)


# `name` of `--name=value` on the command line.
func argument(name: String, otherwise: String) -> String:
	for word in OS.get_cmdline_args():
		if word.begins_with("--%s=" % name):
			return word.split("=", true, 1)[1]
	return otherwise


func placed(name: String, rng: RandomNumberGenerator, apart: float) -> Spatial:
	var thing = Spatial.new()
	thing.name = name
	while true:
		thing.translation = Vector3(rng.randf_range(-SIZE, SIZE), 0, rng.randf_range(-SIZE, SIZE))
		if thing.translation.length() >= apart:
			break
	add_child(thing)
	return thing


func reach_server() -> bool:
	http.blocking_mode_enabled = true
	if http.connect_to_host("127.0.0.1", int(argument("port", "5000"))) != OK:
		return false
	while http.get_status() in [HTTPClient.STATUS_CONNECTING, HTTPClient.STATUS_RESOLVING]:
		http.poll()
		OS.delay_msec(1)
	return http.get_status() == HTTPClient.STATUS_CONNECTED


func _physics_process(_delta: float) -> void:
	if not http.get_status() == HTTPClient.STATUS_CONNECTED:
		return
	var answer = post("/observe", observation())
	if answer == null:
		printerr("no answer at tick %d" % tick)
		get_tree().quit(1)
		return
	last_result = act(answer["tool"], answer["params"])
	for fire in fires:
		if forager.translation.distance_to(fire.translation) < BURNS:
			health -= DAMAGE
			damage += DAMAGE
	tick += 1
	if berries.empty() or health <= 0 or tick == int(argument("ticks", "200")):
		var metrics = {"resources": collected, "damage": damage, "time": tick}
		post("/experience", {"agent_id": "forager", "tick": tick, "text": "the episode is over", "done": true,
			"success": berries.empty(), "metrics": metrics})
		print("foraging: %s" % to_json(metrics))
		get_tree().quit()


func observation() -> Dictionary:
	return {
		"agent_id": "forager", "tick": tick, "position": numbers(forager.translation), "health": health,
		"perception_radius": SIGHT, "nearby_resources": near(berries, "berry", 0.0),
		"nearby_hazards": near(fires, "fire", DAMAGE), "inventory": {"berry": collected}, "tool_result": last_result,
	}


func near(things: Array, type: String, hurts: float) -> Array:
	var found = []
	for thing in things:
		var distance = forager.translation.distance_to(thing.translation)
		if distance <= SIGHT:
			found.append({"name": thing.name, "type": type, "position": numbers(thing.translation),
				"distance": distance, "damage": hurts})
	return found


func numbers(point: Vector3) -> Array:
	return [point.x, point.y, point.z]


# Carries out a tool; what became of it goes into the next observation.
func act(tool_name: String, params: Dictionary) -> Dictionary:
	match tool_name:
		"move_to", "navigate_to":
			var target = Vector3(params["target_position"][0], 0, params["target_position"][2])
			var far = clamp(params.get("speed", 1.0), 0, MAX_SPEED)
			var to = forager.translation.move_toward(target, far)
			forager.translation = Vector3(clamp(to.x, -SIZE, SIZE), 0, clamp(to.z, -SIZE, SIZE))
		"collect", "pickup", "pickup_item":
			for berry in berries:
				if forager.translation.distance_to(berry.translation) <= REACH:
					berries.erase(berry)
					collected += 1
					return result(tool_name, true, "")
			return result(tool_name, false, "nothing is within reach")
		"idle", "stop_movement":
			pass
		_:
			return result(tool_name, false, "this game has no such tool")
	return result(tool_name, true, "")


func result(tool_name: String, success: bool, error: String) -> Dictionary:
	return {"tool": tool_name, "success": success, "result": null, "error": error, "duration_ticks": 1}


# Waits for the answer: the game stands still while the agent thinks. null where there is none.
func post(path: String, body: Dictionary):
	if http.request(HTTPClient.METHOD_POST, path, ["Content-Type: application/json"], to_json(body)) != OK:
		return null
	while http.get_status() == HTTPClient.STATUS_REQUESTING:
		http.poll()
		OS.delay_usec(200)
	var data = PoolByteArray()
	while http.get_status() == HTTPClient.STATUS_BODY:
		http.poll()
		data.append_array(http.read_response_body_chunk())
	if http.get_response_code() != 200:
		printerr(data.get_string_from_utf8())
		return null
	return JSON.parse(data.get_string_from_utf8()).result
