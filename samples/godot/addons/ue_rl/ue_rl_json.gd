# Infos and options as JSON. Godot 3's own writer keeps six decimals, so that 4e-7 would arrive as 0, writes infinities, which JSON
# does not have, and leaves control characters in texts as they are. Its reader misses the last bits of many numbers.
extends Reference

const Double = preload("ue_rl_double.gd")
const Text = preload("ue_rl_text.gd")

const NUMBER = "\ufdd0"  # no character of any text: what follows it is a number

var _warned = {}  # keys of values that were left out


# A Dictionary as a JSON object. Numbers keep all their digits; vectors become lists. A value that holds NaN or infinity
# is left out with its key, and a warning says so once.
func object(values: Dictionary) -> String:
	var pairs = PoolStringArray()
	for key in values:
		var text = _text(values[key])
		if text != "":
			pairs.append(_quoted(str(key)) + ":" + text)
		elif not _warned.has(key):
			_warned[key] = true
			var why = "it holds NaN or infinity, which JSON cannot carry"
			printerr("ue_rl: the info \"%s\" is left out: %s" % [key, why])
	return "{" + pairs.join(",") + "}"


# `value` as JSON, "" where it holds a number that is not finite.
func _text(value) -> String:
	match typeof(value):
		TYPE_NIL:
			return "null"
		TYPE_BOOL:
			return "true" if value else "false"
		TYPE_INT:
			return str(value)
		TYPE_REAL:
			return "" if is_nan(value) or is_inf(value) else Double.text(value)
		TYPE_STRING:
			return _quoted(value)
		TYPE_DICTIONARY:
			var pairs = PoolStringArray()
			for key in value:
				var text = _text(value[key])
				if text == "":
					return ""
				pairs.append(_quoted(str(key)) + ":" + text)
			return "{" + pairs.join(",") + "}"
		TYPE_VECTOR2:
			return _float32s([value.x, value.y])
		TYPE_VECTOR3:
			return _float32s([value.x, value.y, value.z])
		TYPE_REAL_ARRAY:
			return _float32s(value)
		TYPE_ARRAY, TYPE_INT_ARRAY, TYPE_STRING_ARRAY, TYPE_RAW_ARRAY, TYPE_VECTOR2_ARRAY, TYPE_VECTOR3_ARRAY:
			var texts = PoolStringArray()
			for item in value:
				var text = _text(item)
				if text == "":
					return ""
				texts.append(text)
			return "[" + texts.join(",") + "]"
	return _quoted(str(value))


# A float32 as a double has many more digits than it knows.
func _float32s(numbers) -> String:
	var texts = PoolStringArray()
	for number in numbers:
		if is_nan(number) or is_inf(number):
			return ""
		texts.append(Text.number(number))
	return "[" + texts.join(",") + "]"


func _quoted(text: String) -> String:
	var quoted = ""
	for c in text:
		if c == '"' or c == "\\":
			quoted += "\\" + c
		elif ord(c) < 32:
			quoted += "\\u%04x" % ord(c)
		else:
			quoted += c
	return '"' + quoted + '"'


# The JSON object in percent-encoded text, null where there is none. Godot reads all of it but the numbers: they are
# handed to it as texts.
static func read_object(text: String):
	var json = text.percent_decode()
	if NUMBER in json or "\\ufdd0" in json.to_lower():
		return null
	var pieces = PoolStringArray()
	var begin = 0
	var depth = 0
	var number = -1  # where it begins; -1: outside of one
	var behind = false  # a number, which is no key
	var quoted = false
	var escaped = false
	for i in json.length():
		var c = json[i]
		if quoted:
			quoted = escaped or c != '"'
			escaped = not escaped and c == "\\"
			continue
		if number >= 0 and not c in "0123456789+-.eE":
			var found = _number_of(json.substr(number, i - number))
			if found == "":
				return null
			pieces.append(json.substr(begin, number - begin))
			pieces.append(found)
			begin = i
			number = -1
			behind = true
		elif number < 0 and c in "0123456789+-":
			number = i
		if c == "[" or c == "{":
			depth += 1
		elif c == "]" or c == "}":
			depth -= 1
		elif c == '"':
			quoted = true
		if c == ":" and behind:
			return null
		behind = behind and (c == " " or c == "\t")
		if depth > 64:  # Godot's reader calls itself for each bracket, without a limit
			return null
	pieces.append(json.substr(begin))
	json = pieces.join("")
	var result = JSON.parse(json)
	return _with_numbers(result.result) if result.error == OK and result.result is Dictionary else null


# A number as the text that stands for it, "" where it is none that is finite.
static func _number_of(text: String) -> String:
	var value = Double.read(text)
	return "" if value == null or is_inf(value) else '"' + NUMBER + text + '"'


static func _with_numbers(value):
	match typeof(value):
		TYPE_STRING:
			return Double.read(value.substr(1)) if value.begins_with(NUMBER) else value
		TYPE_ARRAY:
			for i in value.size():
				value[i] = _with_numbers(value[i])
		TYPE_DICTIONARY:
			for key in value:
				value[key] = _with_numbers(value[key])
	return value
