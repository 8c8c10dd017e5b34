# Reads what a trainer sends: rows of a request, and calls. It changes nothing; what is wrong comes back as a sentence.
extends Reference

const Double = preload("ue_rl_double.gd")
const Json = preload("ue_rl_json.gd")
const Text = preload("ue_rl_text.gd")
const CALLS = ["GET", "SET", "TIME_SCALE", "PAUSE", "RENDER", "GOALS"]

var act_size = 0
var parameters = {}  # name -> [value at the start, lowest, highest]
var options = false  # announced: else they are skipped as any key that is not known
var mask_size = 0
var _ranges = []  # [lowest, highest] for each number of an action that is a choice, null for a number of a BOX


func _init(action_space: String, numbers: int) -> void:
	act_size = numbers
	var tree = action_space.begins_with("DICT") or action_space.begins_with("TUPLE")
	# The leaves in their order: "DICT(a:BOX(-1:1", "[2],b:DISCRETE(3", "", of a tree.
	var pieces = action_space.to_upper().split(")")
	for i in pieces.size():
		var at = pieces[i].find_last("(")
		if at < 0:
			continue
		var words = pieces[i].left(at).replace("(", ",").replace(":", ",").split(",")
		var inside = pieces[i].substr(at + 1).split(",")
		match words[-1]:
			"BOX":
				var count = inside.size() if tree else numbers
				if i + 1 < pieces.size() and pieces[i + 1].begins_with("["):
					count = 1
					for side in pieces[i + 1].substr(1).split("]")[0].split(",", false):
						count *= int(side)
				for _i in count:
					_ranges.append(null)
			"MULTI_BINARY":
				for _i in int(inside[0]):
					_ranges.append([0, 1])
			"DISCRETE", "MULTI_DISCRETE":
				for choices in inside:
					var ends = choices.split(":")
					_ranges.append([0, int(choices) - 1] if ends.size() == 1 else [int(ends[0]), int(ends[1])])
	for ends in _ranges:
		mask_size += 0 if ends == null else ends[1] - ends[0] + 1


# "" if the action space has as many numbers as the game says.
func fault() -> String:
	if _ranges.size() == act_size:
		return ""
	return "the action space has %d numbers, but start() was told %d" % [_ranges.size(), act_size]


# {"ACT": [numbers] or null for a reset, "ENV", "SEED": int, "OPTIONS", "SET": Dictionary}, all but ACT only if given;
# or {"fault": why}.
func row(text: String, last := true) -> Dictionary:
	var ask = fields(text, last)
	if ask.has("fault"):
		return ask
	if not ask.has("ACT"):
		return {"fault": "no ACT"}
	if ask.ACT.to_upper() != "RESET":
		return _action(ask)
	ask.ACT = null
	if ask.has("OPTIONS") and options:
		var given = Json.read_object(ask.OPTIONS)
		if given == null:
			return {"fault": "OPTIONS are no JSON object"}
		ask.OPTIONS = given
	elif ask.has("OPTIONS"):
		var _gone = ask.erase("OPTIONS")
	if ask.has("SET") and not parameters.empty():
		ask.SET = settings(ask.SET)
		if ask.SET is String:
			return {"fault": ask.SET}
	return ask


func _action(ask: Dictionary) -> Dictionary:
	var numbers = []
	for text in ask.ACT.split(","):
		var number = Text.read_number(text.strip_edges())
		if number == null or abs(number) > Text.MAX_FLOAT32:
			return {"fault": "ACT holds something that is not a finite number"}
		numbers.append(number)
	if numbers.size() != act_size:
		return {"fault": "ACT holds %d numbers, not %d" % [numbers.size(), act_size]}
	for i in act_size:
		var ends = _ranges[i]
		if ends != null:
			if numbers[i] != floor(numbers[i]) or numbers[i] < ends[0] or numbers[i] > ends[1]:
				return {"fault": "ACT holds a choice that is not one of %d to %d" % ends}
			numbers[i] = int(numbers[i])
	ask.ACT = numbers
	return ask


# The fields of a row or call by key, with ENV and SEED as numbers. A call's name alone has the value null. `last`: the
# text ends its line, and only there may SEQ stand.
func fields(text: String, last := true) -> Dictionary:
	var found = {}
	for field in text.split(";"):
		var at = field.find("=")
		var key = (field if at < 0 else field.left(at)).strip_edges().to_upper()
		if key == "" or (at < 0 and not (found.empty() and key in CALLS)):
			return {"fault": "a field without key=value"}
		if found.has("SEQ") or (key == "SEQ" and not last):
			return {"fault": "SEQ stands once, at the end of the line"}
		if found.has(key):
			return {"fault": key + " given twice"}
		var value = null if at < 0 else field.substr(at + 1).strip_edges()
		if key == "ENV" or key == "SEED":
			value = Text.read_integer(str(value))
			if value == null or value < 0:
				return {"fault": key + (" is not a number of 0 or more" if value == null else " is beyond 2^63 - 1")}
		if key == "SEQ" and (value.length() > 18 or not value.is_valid_integer() or int(value) < 1):
			return {"fault": "SEQ has 1 to 18 digits, from 1"}
		found[key] = value
	return found


# The end of each answer to this line: ";SEQ=7" where it ends so, else "".
func number(line: String) -> String:
	var at = line.find_last(";")
	var pair = line.substr(at + 1).split("=")
	if at < 0 or pair.size() != 2 or pair[0].strip_edges().to_upper() != "SEQ":
		return ""
	return ";SEQ=%d" % int(pair[1])


# Is this line a call? Its first word says it.
func is_call(line: String) -> bool:
	if line.begins_with("ACT"):
		return false
	return line.split(";")[0].split("=")[0].strip_edges().to_upper() in CALLS


# {name: number} of "name:number,..", or a sentence that says what is wrong.
func settings(text: String):
	var found = {}
	for pair in text.split(","):
		var colon = pair.find(":")
		var name = pair.left(colon).strip_edges().percent_decode()
		var value = Double.read(pair.substr(colon + 1).strip_edges())
		if colon < 1 or value == null or is_inf(value):
			return "SET holds something that is not name:number"
		if not parameters.has(name) or found.has(name):
			return "SET names a parameter that there is not, or one twice: " + name
		var ends = parameters[name]
		if value < ends[1] or value > ends[2]:
			return "%s is from %s to %s" % [name, Double.text(ends[1]), Double.text(ends[2])]
		found[name] = value
	return found
