# Doubles as text and back, to the bit. Godot 3's own functions are no help: float() and to_float() give a float32,
# str2var() and JSON.parse() miss the last bits of many numbers with 16 or 17 digits, and no format writes small ones.
#
# A number is its digits times a power of ten. Both directions compute that with 106 bits, as a sum of two doubles in an
# array: [what a double holds, what it leaves]. Reading then rounds once.
extends Reference

const Text = preload("ue_rl_text.gd")

# All the powers of ten that a double holds exactly.
const POWERS = [
	1.0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
	1e21, 1e22
]
const TENTH_POWER = 10000000000000000  # 10^16: the smallest number of 17 digits
const MOST_DIGITS = 36
const GROUP = 9  # as many digits as can be multiplied by a power of ten in a double
const EXACT = 9007199254740992.0  # 2^53: a double holds all smaller whole numbers
const SPLIT = 134217729.0  # 2^27 + 1 cuts a double into two halves of 26 bits
const SMALLEST_NORMAL = -1022  # the power of two below which a double has fewer than 53 bits
const SMALLEST = -1074  # the power of two of the smallest double


# A text of at most 17 digits that reads back as `x`; "nan", "inf" or "-inf".
static func text(x: float) -> String:
	if is_nan(x):
		return "nan"
	var sign_of_x = "-" if atan2(x, -1.0) < 0.0 else ""  # -0.0 has a sign, too
	var size = abs(x)
	if is_inf(x):
		return sign_of_x + "inf"
	if size == 0.0:
		return "-0.0" if sign_of_x == "-" else "0"  # a reader of JSON takes -0 for a whole number, which has no sign
	# Most numbers that people write have few digits: a whole number of up to 53 bits divided by an exact power of ten
	# rounds once, so the quotient is what a reader makes of the text.
	for places in range(0, 17):
		var whole = round(size * POWERS[places])
		if whole >= EXACT:
			break
		if whole / POWERS[places] == size:
			return sign_of_x + _spelt(str(int(whole)), -places)
	return sign_of_x + _long_text(size)


static func _long_text(size: float) -> String:
	var power = int(floor(log(size) / log(10.0)))
	var digits = _seventeen_digits(size, power)
	# The logarithm may miss the next power of ten by a bit.
	if digits >= 10 * TENTH_POWER:
		power += 1
		digits = _seventeen_digits(size, power)
	elif digits < TENTH_POWER:
		power -= 1
		digits = _seventeen_digits(size, power)
	# 15 digits always survive in a double, 17 always tell it from its neighbours.
	for left_out in [100, 10]:
		var shorter = _spelt(str((digits + left_out / 2) / left_out * left_out), power - 16)
		if read(shorter) == size:
			return shorter
	return _spelt(str(digits), power - 16)


# size / 10^power with 16 digits behind the point, as a whole number.
static func _seventeen_digits(size: float, power: int) -> int:
	# Far from the ends of a double's range nothing overflows or loses bits on the way.
	var shift = 600 if size < 1e-200 else -64 if size > 1e200 else 0
	var scaled = _times_power_of_ten([size * pow(2.0, shift), 0.0], 16 - power)
	var back = pow(2.0, -shift)
	return int(scaled[0] * back) + int(round(scaled[1] * back))


# "digits" times 10^power, with a point or an exponent, and without zeros at the end.
static func _spelt(digits: String, power: int) -> String:
	var first = digits.length() - 1 + power  # the power of ten of the first digit
	var shown = digits.rstrip("0")
	if shown == "":
		return "0"
	if first < -5 or first > 16:
		var rest = shown.substr(1)
		return shown.left(1) + ("." + rest if rest != "" else "") + "e" + str(first)
	if first < 0:
		return "0." + shown.pad_zeros(shown.length() - first - 1)
	if shown.length() <= first + 1:
		return digits.left(1) + digits.substr(1).left(first) + "0".repeat(int(max(0, first + 1 - digits.length())))
	return shown.left(first + 1) + "." + shown.substr(first + 1)


# The double nearest to the number in `text`, an infinity where it is beyond all; null where it is no number.
static func read(text: String):
	if Text.read_number(text) == null:
		return null
	var at = text.findn("e")
	var mantissa = text if at < 0 else text.left(at)
	var power = 0
	if at >= 0:
		var exponent = text.substr(at + 1)
		power = int("0" + exponent.lstrip("+-0").left(6))
		if exponent.begins_with("-"):
			power = -power
	var sign_of_x = -1.0 if mantissa.begins_with("-") else 1.0
	var parts = mantissa.lstrip("+-").split(".")
	var digits = parts[0]
	if parts.size() > 1:
		digits += parts[1]
		power -= parts[1].length()
	digits = digits.lstrip("0")
	if digits.length() > MOST_DIGITS:
		power += digits.length() - MOST_DIGITS
		digits = digits.left(MOST_DIGITS)
	if digits == "" or digits.length() + power < -330:
		return sign_of_x * 0.0
	if digits.length() + power > 310:
		return sign_of_x * pow(10.0, 400.0)
	var shift = 600 if power < 0 else -64  # as in _seventeen_digits
	var found = [0.0, 0.0]
	for start in range(0, digits.length(), GROUP):
		var group = digits.substr(start, GROUP)
		found = _plus(_times(found, POWERS[group.length()]), 1.0 * int(group))
	found = [found[0] * pow(2.0, shift), found[1] * pow(2.0, shift)]
	return sign_of_x * _rounded(_times_power_of_ten(found, power), shift)


# x / 2^shift, rounded once.
static func _rounded(x: Array, shift: int) -> float:
	var back = pow(2.0, -shift)
	if x[0] >= pow(2.0, SMALLEST_NORMAL + shift):
		return x[0] * back
	# So small that a double has fewer bits: a whole number of the smallest double, the nearest one, of two the even one.
	var unit = pow(2.0, SMALLEST + shift)
	var whole = floor(x[0] / unit)
	var beyond_half = (x[0] / unit - whole - 0.5) + x[1] / unit
	if beyond_half > 0.0 or (beyond_half == 0.0 and int(whole) % 2 == 1):
		whole += 1.0
	return whole * unit * back


static func _times_power_of_ten(x: Array, power: int) -> Array:
	while power > 0:
		var step = int(min(power, 22))
		x = _times(x, POWERS[step])
		power -= step
	while power < 0:
		var step = int(min(-power, 22))
		x = _divided(x, POWERS[step])
		power += step
	return x


# a + b, where `a` is not the smaller one, as [sum, what it leaves].
static func _sum(a: float, b: float) -> Array:
	var sum = a + b
	return [sum, b - (sum - a)]


# a * b as [product, what it leaves]: exact.
static func _product(a: float, b: float) -> Array:
	var product = a * b
	var cut = SPLIT * a
	var a_high = cut - (cut - a)
	var a_low = a - a_high
	cut = SPLIT * b
	var b_high = cut - (cut - b)
	var b_low = b - b_high
	return [product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low]


# `b` is a whole number below 10^9, and `x` zero or greater than it.
static func _plus(x: Array, b: float) -> Array:
	if x[0] == 0.0:
		return [b, 0.0]
	var sum = _sum(x[0], b)
	return _sum(sum[0], sum[1] + x[1])


static func _times(x: Array, b: float) -> Array:
	var product = _product(x[0], b)
	return _sum(product[0], product[1] + x[1] * b)


static func _divided(x: Array, b: float) -> Array:
	var quotient = x[0] / b
	var back = _product(quotient, b)
	return _sum(quotient, ((x[0] - back[0]) - back[1] + x[1]) / b)
