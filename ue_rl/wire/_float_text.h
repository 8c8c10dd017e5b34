/* float32 <-> decimal text, exact in both directions, independent of the locale.
 *
 * Reading: Clinger's fast path (a mantissa below 2^53 and a power of ten up to 10^22 are exact doubles,
 * so one multiplication or division rounds correctly); everything else goes to Python's own
 * correctly rounded conversion. The double is then rounded to float32, as docs/protocol.md says.
 *
 * Writing: the shortest decimal that reads back to the same float32, by the Schubfach method
 * (R. Giulietti, "The Schubfach way to render doubles"), laid out as NumPy prints a float32 but without a
 * trailing ".0". Both directions are compared with NumPy in tests/wire/test_kernels.py.
 */
#ifndef UE_RL_FLOAT_TEXT_H
#define UE_RL_FLOAT_TEXT_H

#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define FLOAT_TEXT_MAX 24

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

/* Out of memory: infinite, with MemoryError set. */
static double slow_double(const char *start, const char *end)
{
    char small[128];
    size_t length = (size_t)(end - start);
    char *text = length < sizeof small ? small : PyMem_Malloc(length + 1);
    double value;
    if (text == NULL) {
        PyErr_NoMemory();
        return HUGE_VAL;
    }
    memcpy(text, start, length);
    text[length] = 0;
    value = PyOS_string_to_double(text, NULL, NULL);
    if (text != small) PyMem_Free(text);
    return PyErr_Occurred() ? HUGE_VAL : value;
}

/* Reads one number at *pp, leaves *pp behind it. Returns NUMBER_OK and *out, or what is wrong. */
static inline int read_float(const char **pp, const char *end, float *out)
{
    const char *start = *pp, *p = start;
    uint64_t mantissa = 0;
    int digits = 0, significant = 0, exponent = 0, negative = 0;
    double value;
    float narrow;

    if (p < end && (*p == '-' || *p == '+')) negative = (*p++ == '-');
    for (; p < end && is_digit(*p); p++, digits++) {
        if (significant < 19) {
            mantissa = mantissa * 10 + (uint64_t)(*p - '0');
            significant += mantissa != 0;
        } else {
            significant = 99;
        }
    }
    if (p < end && *p == '.') {
        const char *dot = p++;
        for (; p < end && is_digit(*p); p++, digits++) {
            if (significant < 19) {
                mantissa = mantissa * 10 + (uint64_t)(*p - '0');
                significant += mantissa != 0;
                exponent--;
            } else {
                significant = 99;
            }
        }
        if (digits == 0) p = dot;
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
        if (negative) value = -value;
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
    *exponent = k;
    if (s >= 10) {
        uint32_t tens = s / 10;
        int down = low <= 40 * tens, up = 40 * tens + 40 <= high;
        if (down != up) {
            *exponent = k + 1;
            return tens + (uint32_t)up;
        }
    }
    {
        int down = low <= 4 * s, up = 4 * s + 4 <= high;
        uint32_t half = 4 * s + 2;
        if (down != up) return s + (uint32_t)up;
        return s + (uint32_t)(middle > half || (middle == half && (s & 1)));
    }
}

/* Writes value at p (room for FLOAT_TEXT_MAX), returns the end. The value must be finite. */
static inline char *write_float(char *p, float value)
{
    uint32_t bits, digits;
    char text[12];
    int exponent, n = 0, point, i;

    memcpy(&bits, &value, 4);
    if (bits >> 31) *p++ = '-';
    bits &= 0x7FFFFFFF;
    if (bits == 0) {
        *p++ = '0';
        return p;
    }
    digits = shortest_digits(bits, &exponent);
    while (digits % 10 == 0) digits /= 10, exponent++;
    while (digits) text[11 - n++] = (char)('0' + digits % 10), digits /= 10;
    point = n + exponent; /* value = 0.text * 10^point */
    if (point > 16 || point < -3) { /* NumPy: below 1e-4 and from 1e16 on */
        const char *t = text + 12 - n;
        int e = point - 1;
        *p++ = *t++;
        if (n > 1) {
            *p++ = '.';
            memcpy(p, t, (size_t)(n - 1));
            p += n - 1;
        }
        *p++ = 'e';
        *p++ = e < 0 ? '-' : '+';
        if (e < 0) e = -e;
        *p++ = (char)('0' + e / 10);
        *p++ = (char)('0' + e % 10);
        return p;
    }
    if (point <= 0) {
        *p++ = '0';
        *p++ = '.';
        for (i = point; i < 0; i++) *p++ = '0';
        memcpy(p, text + 12 - n, (size_t)n);
        return p + n;
    }
    if (exponent >= 0) {
        memcpy(p, text + 12 - n, (size_t)n);
        p += n;
        for (i = 0; i < exponent; i++) *p++ = '0';
        return p;
    }
    memcpy(p, text + 12 - n, (size_t)point);
    p += point;
    *p++ = '.';
    memcpy(p, text + 12 - n + point, (size_t)(n - point));
    return p + (n - point);
}

#endif
