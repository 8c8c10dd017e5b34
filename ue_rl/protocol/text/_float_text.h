/* float32 <-> decimal text, exact in both directions, independent of the locale.
 *
 * Reading: Clinger's fast path (a mantissa below 2^53 and a power of ten up to 10^22 are exact doubles,
 * so one multiplication or division rounds correctly); everything else goes to a correctly rounded
 * conversion, which is Python's own in _kernels.c. The double is then rounded to float32, as docs/protocol.md says.
 *
 * Writing: the shortest decimal that reads back to the same float32, by the Schubfach method
 * (R. Giulietti, "The Schubfach way to render doubles"), laid out as NumPy prints a float32 but without a
 * trailing ".0". Both directions are compared with NumPy in tests/protocol/text/test_kernels.py.
 */
#ifndef UE_RL_FLOAT_TEXT_H
#define UE_RL_FLOAT_TEXT_H

#include <stddef.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define FLOAT_TEXT_MAX 24

#if defined(__GNUC__) && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define LITTLE_ENDIAN_GNUC 1 /* or clang; elsewhere the same is done byte by byte */
#else
#define LITTLE_ENDIAN_GNUC 0
#endif

static const double POW10[23] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* ceil(10^k * 2^(63 - floor(log2(10^k)))) for k = -31 .. 45 */
static const uint64_t POW10_BITS[77] = {
    0x81CEB32C4B43FCF5ULL, 0xA2425FF75E14FC32ULL, 0xCAD2F7F5359A3B3FULL, 0xFD87B5F28300CA0EULL,
    0x9E74D1B791E07E49ULL, 0xC612062576589DDBULL, 0xF79687AED3EEC552ULL, 0x9ABE14CD44753B53ULL,
    0xC16D9A0095928A28ULL, 0xF1C90080BAF72CB2ULL, 0x971DA05074DA7BEFULL, 0xBCE5086492111AEBULL,
    0xEC1E4A7DB69561A6ULL, 0x9392EE8E921D5D08ULL, 0xB877AA3236A4B44AULL, 0xE69594BEC44DE15CULL,
    0x901D7CF73AB0ACDAULL, 0xB424DC35095CD810ULL, 0xE12E13424BB40E14ULL, 0x8CBCCC096F5088CCULL,
    0xAFEBFF0BCB24AAFFULL, 0xDBE6FECEBDEDD5BFULL, 0x89705F4136B4A598ULL, 0xABCC77118461CEFDULL,
    0xD6BF94D5E57A42BDULL, 0x8637BD05AF6C69B6ULL, 0xA7C5AC471B478424ULL, 0xD1B71758E219652CULL,
    0x83126E978D4FDF3CULL, 0xA3D70A3D70A3D70BULL, 0xCCCCCCCCCCCCCCCDULL, 0x8000000000000000ULL,
    0xA000000000000000ULL, 0xC800000000000000ULL, 0xFA00000000000000ULL, 0x9C40000000000000ULL,
    0xC350000000000000ULL, 0xF424000000000000ULL, 0x9896800000000000ULL, 0xBEBC200000000000ULL,
    0xEE6B280000000000ULL, 0x9502F90000000000ULL, 0xBA43B74000000000ULL, 0xE8D4A51000000000ULL,
    0x9184E72A00000000ULL, 0xB5E620F480000000ULL, 0xE35FA931A0000000ULL, 0x8E1BC9BF04000000ULL,
    0xB1A2BC2EC5000000ULL, 0xDE0B6B3A76400000ULL, 0x8AC7230489E80000ULL, 0xAD78EBC5AC620000ULL,
    0xD8D726B7177A8000ULL, 0x878678326EAC9000ULL, 0xA968163F0A57B400ULL, 0xD3C21BCECCEDA100ULL,
    0x84595161401484A0ULL, 0xA56FA5B99019A5C8ULL, 0xCECB8F27F4200F3AULL, 0x813F3978F8940985ULL,
    0xA18F07D736B90BE6ULL, 0xC9F2C9CD04674EDFULL, 0xFC6F7C4045812297ULL, 0x9DC5ADA82B70B59EULL,
    0xC5371912364CE306ULL, 0xF684DF56C3E01BC7ULL, 0x9A130B963A6C115DULL, 0xC097CE7BC90715B4ULL,
    0xF0BDC21ABB48DB21ULL, 0x96769950B50D88F5ULL, 0xBC143FA4E250EB32ULL, 0xEB194F8E1AE525FEULL,
    0x92EFD1B8D0CF37BFULL, 0xB7ABC627050305AEULL, 0xE596B7B0C643C71AULL, 0x8F7E32CE7BEA5C70ULL,
    0xB35DBF821AE4F38CULL,
};

static const double SIGNS[2] = {1, -1};

enum { NUMBER_OK = 0, NUMBER_NONE = 1, NUMBER_NOT_FINITE = 2 };

static inline int is_digit(char c) { return (unsigned)(c - '0') < 10u; }

/* Does an infinity or NaN stand at p, in any of the spellings of C libraries? */
static int spells_non_finite(const char *p, const char *end)
{
    char word[4];
    int i;
    if (p < end && (*p == '+' || *p == '-')) p++;
    for (i = 0; i < 3 && p + i < end; i++) word[i] = (char)(p[i] | 0x20);
    word[i] = 0;
    return strcmp(word, "nan") == 0 || strcmp(word, "inf") == 0;
}

/* Any number's text, correctly rounded: defined by what includes this. Infinite: no number of float32 either. */
static double slow_double(const char *start, const char *end);

static const uint32_t TENS[10] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000};

/* Eight characters in one number, the first in its lowest byte. */
static inline uint64_t get_eight(const char *p)
{
    uint64_t word = 0;
#if LITTLE_ENDIAN_GNUC
    memcpy(&word, p, 8);
#else
    int i;
    for (i = 7; i >= 0; i--) word = word << 8 | (uint8_t)p[i];
#endif
    return word;
}

static inline void put_eight(char *p, uint64_t word)
{
#if LITTLE_ENDIAN_GNUC
    memcpy(p, &word, 8);
#else
    int i;
    for (i = 0; i < 8; i++) p[i] = (char)(word >> 8 * i);
#endif
}

/* Zero bits below the lowest one, or above the highest one, of a number that is not 0. */
static inline int zeros_below(uint64_t x)
{
#if LITTLE_ENDIAN_GNUC
    return __builtin_ctzll(x);
#else
    int n = 0;
    for (; !(x & 1); x >>= 1) n++;
    return n;
#endif
}

static inline int zeros_above(uint64_t x)
{
#if LITTLE_ENDIAN_GNUC
    return __builtin_clzll(x);
#else
    int n = 64;
    for (; x; x >>= 1) n--;
    return n;
#endif
}

/* How many of the seven bytes at p are digits before the first other one, and their value; eight bytes are read. No
 * branch: how many there are cannot be foretold. */
static inline int seven_digits(const char *p, uint32_t *value)
{
    uint64_t word = get_eight(p) ^ 0x3030303030303030ULL; /* a digit is its value now, anything else is 10 or more */
    uint64_t others = (word | (word + 0x7676767676767676ULL)) & 0x8080808080808080ULL;
    int n = zeros_below(others | 0x8000000000000000ULL) >> 3;
    word = word << 8 << (56 - 8 * n); /* zeros before the digits */
    word = word * 10 + (word >> 8);   /* pairs of them, then fours, then all */
    *value = (uint32_t)(((word & 0x000000FF000000FFULL) * 0x000F424000000064ULL +
                         ((word >> 16) & 0x000000FF000000FFULL) * 0x0000271000000001ULL) >> 32);
    return n;
}

/* Takes in the digits at p; returns where they end. `significant` counts them, with or without leading zeros: where it is
 * beyond 19 the mantissa is worth nothing. */
static inline const char *read_digits(const char *p, const char *end, uint64_t *mantissa, int *significant)
{
    if (end - p >= 15 && *significant <= 3) {
        uint32_t first, second;
        int n = seven_digits(p, &first), more = seven_digits(p + 7, &second);
        uint32_t on = 0u - (uint32_t)(n == 7);
        more &= (int)on;
        *mantissa = (*mantissa * TENS[n] + first) * TENS[more] + (second & on);
        *significant += n + more;
        p += n + more;
        if (more < 7) return p;
    }
    for (; p < end && is_digit(*p); p++) {
        if (*significant < 19) {
            *mantissa = *mantissa * 10 + (uint64_t)(*p - '0');
            *significant += *mantissa != 0;
        } else {
            *significant = 99;
        }
    }
    return p;
}

/* Reads one number at *pp, leaves *pp behind it. Returns NUMBER_OK and *out, or what is wrong. */
static inline int read_float(const char **pp, const char *end, float *out)
{
    const char *start = *pp, *p = start, *first;
    uint64_t mantissa = 0;
    ptrdiff_t digits;
    int significant = 0, exponent = 0, negative = 0;
    double value;
    float narrow;

    if (p < end) negative = *p == '-', p += (*p == '-') | (*p == '+');
    first = p;
    if (end - p > 1 && is_digit(*p) && p[1] == '.') /* most numbers */
        mantissa = (uint64_t)(*p++ - '0'), significant = mantissa != 0;
    else
        p = read_digits(p, end, &mantissa, &significant);
    digits = p - first;
    if (p < end && *p == '.') {
        first = p + 1;
        p = read_digits(first, end, &mantissa, &significant);
        exponent = (int)(first - p);
        digits += p - first;
        if (digits == 0) p--;
    }
    if (digits == 0) return spells_non_finite(start, end) ? NUMBER_NOT_FINITE : NUMBER_NONE;
    if (p < end && (*p | 0x20) == 'e') {
        const char *q = p + 1;
        int minus = 0, power = 0;
        if (q < end && (*q == '-' || *q == '+')) minus = (*q++ == '-');
        if (q < end && is_digit(*q)) {
            for (; q < end && is_digit(*q); q++)
                if (power < 100000) power = power * 10 + (*q - '0');
            exponent += minus ? -power : power;
            p = q;
        }
    }
    if (p < end && *p == '#') return NUMBER_NOT_FINITE; /* 1.#INF and 1.#QNAN of old C runtimes */
    if (significant <= 19 && mantissa <= (1ULL << 53) && exponent >= -22 && exponent <= 22) {
        value = (double)mantissa;
        value = exponent < 0 ? value / POW10[-exponent] : value * POW10[exponent];
        value *= SIGNS[negative];
    } else {
        value = slow_double(start, p);
    }
    *pp = p;
    narrow = (float)value;
    if (!isfinite(narrow)) return NUMBER_NOT_FINITE;
    *out = narrow;
    return NUMBER_OK;
}

/* upper 64 bits of g * c, with everything below them folded into the lowest bit */
static inline uint32_t round_to_odd(uint64_t g, uint32_t c)
{
    uint64_t low = (g & 0xFFFFFFFFULL) * c;
    uint64_t high = (g >> 32) * c + (low >> 32);
    uint32_t y1 = (uint32_t)(high >> 32), y0 = (uint32_t)high;
    return y1 | (y0 > 1);
}

/* the shortest decimal digits * 10^*exponent equal to the positive float with these bits */
static inline uint32_t shortest_digits(uint32_t bits, int *exponent)
{
    uint32_t fraction = bits & 0x7FFFFF, biased = bits >> 23;
    uint32_t c = biased ? (fraction | 0x800000) : fraction;
    int q = biased ? (int)biased - 150 : -149;
    int odd = (int)(c & 1), closer = fraction == 0 && biased > 1;
    int k = (q * 1262611 - (closer ? 524031 : 0)) >> 22;
    int h = q + ((-k * 1741647) >> 19) + 1;
    uint64_t g = POW10_BITS[31 - k];
    uint32_t low = round_to_odd(g, (4 * c - 2 + (uint32_t)closer) << h);
    uint32_t middle = round_to_odd(g, (4 * c) << h);
    uint32_t high = round_to_odd(g, (4 * c + 2) << h);
    uint32_t s = middle / 4;
    low += (uint32_t)odd;
    high -= (uint32_t)odd;
    { /* one digit less, where that is near enough; no branches, for which it is cannot be foretold */
        uint32_t tens = s / 10, half = 4 * s + 2;
        int less_down = low <= 40 * tens, less_up = 40 * tens + 40 <= high, less = (s >= 10) & (less_down != less_up);
        int down = low <= 4 * s, up = 4 * s + 4 <= high;
        int nearer = (middle > half) | ((middle == half) & (int)(s & 1));
        uint32_t full = s + (uint32_t)(down != up ? up : nearer);
        *exponent = k + less;
        return less ? tens + (uint32_t)less_up : full;
    }
}

/* A finite float as it is written. Making one and laying it out are two steps: where each number has to wait for the
 * length of the one before, a row takes half as long again. */
typedef struct {
    uint64_t rest;          /* the digits behind the first, zeros behind them; see get_eight */
    int first;              /* digit */
    int n, point, negative; /* of n digits, the last of which is no 0; 0.digits * 10^point. n is 0 for 0 */
} FloatText;

static inline void make_text(FloatText *to, float value)
{
    uint32_t bits, digits, last;
    uint64_t word, tens;
    int n;
    memcpy(&bits, &value, 4);
    to->negative = (int)(bits >> 31);
    bits &= 0x7FFFFFFF;
    to->n = 0;
    if (bits == 0) return;
    digits = shortest_digits(bits, &to->point); /* nine at most */
    n = ((64 - zeros_above(digits)) * 1233) >> 12;
    n += digits >= TENS[n];
    to->point += n;
    digits *= TENS[9 - n]; /* all nine */
    to->first = (int)('0' + digits / 100000000);
    last = digits % 100000000;
    word = last / 10000 | (uint64_t)(last % 10000) << 32; /* fours of them, then pairs, then each in a byte */
    tens = (word * 10486 >> 20) & 0x0000007F0000007FULL;
    word = tens + ((word - tens * 100) << 16);
    tens = (word * 103 >> 10) & 0x000F000F000F000FULL;
    word = tens + ((word - tens * 10) << 8);
    to->n = 9 - (zeros_above(word | 1) >> 3);
    to->n -= !word;
    to->rest = word + 0x3030303030303030ULL;
}

/* Lays it out at p (room for FLOAT_TEXT_MAX), returns the end. All digits are stored at once: those that are too much are
 * written over, or cut off. */
static inline char *put_text(char *p, const FloatText *from)
{
    int n = from->n, point = from->point;
    *p = '-';
    p += from->negative;
    if (n == 0) {
        *p = '0';
        return p + 1;
    }
    if (point > 16 || point < -3) { /* NumPy: below 1e-4 and from 1e16 on */
        int e = point - 1;
        *p++ = (char)from->first;
        if (n > 1) {
            *p = '.';
            put_eight(p + 1, from->rest);
            p += n;
        }
        *p++ = 'e';
        *p++ = e < 0 ? '-' : '+';
        if (e < 0) e = -e;
        *p++ = (char)('0' + e / 10);
        *p++ = (char)('0' + e % 10);
        return p;
    }
    if (point <= 0) {
        memcpy(p, "0.000", 5);
        p += 2 - point;
        *p = (char)from->first;
        put_eight(p + 1, from->rest);
        return p + n;
    }
    *p = (char)from->first;
    put_eight(p + 1, from->rest);
    if (n <= point) {
        memcpy(p + 9, "0000000", 7);
        return p + point;
    }
    p[point] = '.';
    put_eight(p + point + 1, from->rest >> 8 * (point - 1));
    return p + n + 1;
}

static inline char *write_float(char *p, float value)
{
    FloatText text;
    make_text(&text, value);
    return put_text(p, &text);
}

#endif
