// ue_rl_bridge.hpp: the engine's side of ue_rl in one C++17 header without dependencies.
//
// Include it wherever you need it. In one .cpp file of your program, and in no other, define the macro before:
//
//     #define UE_RL_BRIDGE_IMPLEMENTATION
//     #include "ue_rl_bridge.hpp"
//
// The first part below declares what a game uses, and includes no header of the system; the second is the
// implementation. The text is docs/protocol.md (version 1.2), shared memory docs/shared-memory.md. Derive from
// MultiEnvBridge (one env at a time) or VectorBridge (whole arrays), give it to a Server, and call tick() once a frame
// or run() once:
//
//     ue_rl::Spec spec;
//     spec.obs_size = 4; spec.act_space = ue_rl::Discrete(3); spec.num_envs = 8;
//     MyGame game(spec);
//     ue_rl::Server server(game);
//     if (!server.start()) return std::fprintf(stderr, "%s\n", server.error().c_str()), 1;
//     server.run();
//
// Nothing here throws. An exception of a callback ends the trainer's session, which is told why; the next trainer is
// served. The header also compiles with exceptions off. Callbacks run in the thread that calls tick() or run().
// Run on Linux with g++ and clang++; text also on Windows, built by MinGW and run under Wine. Written for macOS, not
// run there.
#ifndef UE_RL_BRIDGE_HPP
#define UE_RL_BRIDGE_HPP

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ue_rl {

// -- spaces: what the numbers of an action or an observation mean, docs/protocol.md, section 3

// A number of a Box, where `count` is 0; else one of the `count` integers from `low`. An int n is {n, 0}.
struct Choice {
    std::int64_t count, low;
    Choice(std::int64_t how_many = 0, std::int64_t first = 0) : count(how_many), low(first) {}
};

struct Range {
    double low, high;
};

enum class Number { Float32, Float64, UInt8, Int8, Int16, UInt16, Int32, Int64 };  // what the trainer sees

// Made by the functions below. Where one cannot be, Layout::problem says why.
class Space {
public:
    Space() = default;  // none: the protocol's default
    bool empty() const { return text_.empty(); }
    const std::string& text() const { return text_; }  // as it stands in the handshake

private:
    friend struct SpaceMaker;
    std::string text_, problem_;
    std::vector<Choice> numbers_;
    int height_ = 0, leaves_ = 1;
    bool fits_row_ = false, has_image_ = false;  // fits_row_: as many numbers as the row has
};

// Numbers between low and high, infinity included. Without a shape: as many as the row has, within Dict and Tuple one.
Space Box(double low, double high, const std::vector<int>& shape = {}, Number type = Number::Float32);
// A range for each number: Box({{-1, 1}, {0, 5}}).
Space Box(const std::vector<Range>& ranges, const std::vector<int>& shape = {}, Number type = Number::Float32);
Space Discrete(std::int64_t count, std::int64_t start = 0);
// MultiDiscrete({3, 2}), or with starts: MultiDiscrete({{3, -1}, {2, 1}}).
Space MultiDiscrete(const std::vector<Choice>& choices, const std::vector<int>& shape = {});
Space MultiBinary(int flags, const std::vector<int>& shape = {});
Space Dict(const std::vector<std::pair<std::string, Space>>& parts);
Space Tuple(const std::vector<Space>& parts);
Space ImagePart();  // where in an observation the image of Spec::image stands; it has no numbers

// -- what the game says about itself

enum class EnvType { Multi, Single, RlBase };
enum class Channel { Any, Shared, PerEnv };
// What the game does beyond steps. ERROR and SEQ, which the header does, are added by it.
enum class Feature { Seed, Options, Trunc, Info, Mask, TimeScale, Pause, Render, GoalReward, Demo };

// uint8, as rows of pixels or as planes. only: it is the whole observation. All sizes 0: none.
struct Image {
    std::uint32_t height = 0, width = 0, channels = 0;
    bool planes = false, only = false;
    std::size_t bytes() const { return std::size_t{height} * width * channels; }
};

struct Parameter {
    std::string name;
    double value = 0;
    double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
};

// A group of agents of one kind. Sizes of 0 and empty spaces: those of the Spec.
struct Group {
    std::string name;
    int count = 1;
    int obs_size = 0, act_size = 0;
    Space obs_space, act_space;
    std::vector<std::string> obs_names, act_names;
};

// The handshake, docs/protocol.md, section 3.
struct Spec {
    int obs_size = 1, act_size = 1, num_envs = 1;
    EnvType env_type = EnvType::Multi;
    int version = 1;
    Channel channel = Channel::Any;
    Space act_space = Box(-1, 1), obs_space;
    Image image;
    std::set<Feature> features;
    std::vector<std::string> obs_names, act_names;
    std::vector<Parameter> parameters;
    std::vector<Group> agents;
};

// A Spec, checked, with what follows from it.
class Layout {
public:
    explicit Layout(const Spec& spec);

    struct Agent {
        std::size_t obs_size, act_size, mask_size;
        std::vector<Choice> choices;  // of each number of an action
    };

    std::vector<Agent> agents;                              // of one env; one where an env is one agent
    std::size_t envs = 1, per_env = 1, rows = 1;            // rows: one for each agent of each env
    std::size_t obs_size = 1, act_size = 1, mask_size = 0;  // what a row has
    std::size_t max_line = 0;
    bool calls = false, rings = false, has_choices = false;
    Image image;
    std::string config;   // the handshake, without SHM and line feed
    std::string problem;  // what is wrong with the Spec; empty: nothing

private:
    void bad(const std::string& why);
    void add_agents(const Group& group, const Spec& spec);
    std::string write(const Spec& spec) const;
};

// -- what passes between the game and the trainer

struct Reset {
    int env;
    std::int64_t seed;    // -1: none
    std::string options;  // a JSON object, as text; empty: none
};

// Arrays of all rows, which the game writes. A row is an env, or with agents one agent: env * agents + k. They may lie
// in shared memory: write into them in a callback, and do not keep the pointers.
struct States {
    float* obs = nullptr;                                  // [rows, obs_size]
    float* rewards = nullptr;                              // [rows]
    std::uint8_t *dones = nullptr, *truncateds = nullptr;  // [rows]; truncated alone ends an episode, too
    std::uint8_t* masks = nullptr;                         // [rows, mask_size]; 1: legal
    std::uint8_t* present = nullptr;                       // [rows]; with agents: 1 for each that has just come
    std::uint8_t* image = nullptr;                         // [rows, pixels]
    std::map<int, std::string> infos;                      // row -> a JSON object, as text
};

struct Picture {
    int height = 0, width = 0, channels = 0;
    std::vector<std::uint8_t> pixels;
};

struct Goals {
    std::size_t pairs = 0, achieved_size = 0, desired_size = 0;
    std::vector<float> achieved, desired;  // [pairs, size]
};

// -- the game

struct Inbox;

// The base of both kinds of game. Its callbacks are those beside the steps; each may stay as it is.
class Bridge {
public:
    explicit Bridge(Spec given) : spec(std::move(given)), layout(spec) {
        for (const Parameter& p : spec.parameters) values_.emplace_back(layout.envs, p.value);
    }
    virtual ~Bridge() = default;
    Bridge(const Bridge&) = delete;
    Bridge& operator=(const Bridge&) = delete;

    const Spec spec;
    const Layout layout;

    // The value now of spec.parameters[parameter] in an env; checked against its range before it is set. env -1: all.
    virtual double GetParameter(std::size_t parameter, int env) {
        return values_[parameter][static_cast<std::size_t>(env)];
    }
    virtual void SetParameter(std::size_t parameter, double value, int env) {
        auto& all = values_[parameter];
        if (env < 0) std::fill(all.begin(), all.end(), value);
        else all[static_cast<std::size_t>(env)] = value;
    }
    // Calls, docs/protocol.md, section 8: an empty string, or why the game refuses.
    virtual std::string SetTimeScale(double) { return "this engine has no time scale"; }
    virtual std::string SetPaused(bool) { return "this engine cannot pause"; }
    virtual std::string Render(int, Picture&) { return "this engine renders no picture"; }
    virtual std::string ComputeRewards(const Goals&, std::vector<float>&) {
        return "this engine computes no rewards of goals";
    }
    virtual void SessionBegan() {}
    virtual void SessionEnded(const std::string& /*why*/) {}

    // In a callback, where a game has no exceptions: what follows from one, with this sentence.
    void Fail(const std::string& why) { failure_ = why; }
    std::string TakeFailure() { return std::exchange(failure_, std::string()); }

    // Follows what `inbox` asks as far as this tick comes, and marks the envs that are `answered`.
    virtual void Update(Inbox& inbox, States& states) = 0;
    // Whatever was asked is void: the trainer has gone.
    virtual void Forget() {}

private:
    std::vector<std::vector<double>> values_;
    std::string failure_;
};

// A game of arrays: all envs that were asked in one call, answered in the tick that sees them. Also for agents.
class VectorBridge : public Bridge {
public:
    using Bridge::Bridge;

    // Begins a new episode in each of these envs and writes its observation. With agents all of them are `present`;
    // write 0 for those that are not there.
    virtual void ResetEnvs(const std::vector<Reset>& resets, States& states) = 0;
    // Steps these rows, in ascending order: writes observation, reward, done and truncated. `actions`: [rows,
    // act_size].
    virtual void StepEnvs(const float* actions, const std::vector<int>& rows, States& states) = 0;

    void Update(Inbox& inbox, States& states) override;

private:
    std::vector<int> rows_;
    std::vector<Reset> resets_;
};

// A game of single envs, with the callbacks of the Unreal plugin. An action may take several ticks.
class MultiEnvBridge : public Bridge {
public:
    using Bridge::Bridge;

    virtual void CreateStateForEnv(int env, float* observation) = 0;
    virtual float CalculateRewardForEnv(int env, bool& done, bool& truncated) = 0;
    virtual void HandleResetForEnv(int env, const Reset& reset) = 0;
    virtual void HandleResponseActionsForEnv(int env, const float* actions) = 0;
    // Asked in each tick until it says no; then the state is written.
    virtual bool IsActionRunningForEnv(int) { return false; }
    virtual bool IsResetRunningForEnv(int) { return false; }
    virtual void CreateMaskForEnv(int, std::uint8_t* /*mask*/) {}  // all ones before
    virtual void CreateImageForEnv(int, std::uint8_t* /*pixels*/) {}
    virtual std::string CreateInfoForEnv(int) { return ""; }

    void Update(Inbox& inbox, States& states) override;
    void Forget() override;

private:
    std::vector<std::uint8_t> started_;
};

// -- the server

// What an agent sees: an env, or with agents one of them. Of the step that has just ended, or of a reset.
struct AgentView {
    int row = 0;                         // env * agents + k
    int steps = 0;                       // of the episode; 0: it has just begun
    const float* observation = nullptr;  // obs_size numbers
    const std::uint8_t* mask = nullptr;  // a flag for each choice; nullptr: the Spec has no masks
    float reward = 0;
    double episode_return = 0;
    bool done = false, truncated = false;
};

// In one line, with the names of its numbers: "env 0: x=0.5 speed=-1 | reward 0.1, return 2.3, step 12".
std::string text_of(const Bridge& bridge, const AgentView& view);

struct Options {
    std::string host = "127.0.0.1";
    int port = 7777;                   // 0: a free one, see Server::port()
    bool shared_memory = true;         // offered to each trainer over TCP
    std::string shm_name;              // serves shm://NAME instead of TCP
    std::string token;                 // a secret, 16 bytes or more: who does not know it is not served over TCP
    std::uint32_t ring_size = 524288;  // bytes of a command ring, a multiple of 8; used where the Spec needs one
    std::function<void(const std::string&)> log;  // gets each line of the log; without one they go to stderr
    // Heuristic mode: a person or a script plays, nobody is listened to. It writes act_size numbers for each agent.
    // With Feature::Demo and Feature::Info it plays in the place of a trainer that is listened to, and records it.
    std::function<void(const AgentView&, float* action)> heuristic;
    std::function<void(const AgentView&)> show;  // there: after each step and reset; without one text_of() is logged
};

// Serves one trainer after the other.
class Server {
public:
    explicit Server(Bridge& bridge, Options options = {});
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    // Listens; false: error() says why not. Where the port was taken it may be tried again.
    bool start();
    const std::string& error() const;
    int port() const;
    bool serving() const;

    // For a game with a loop of its own: takes what is asked, lets the game follow it, answers. It never blocks, unless
    // `wait_ms` says how long it may wait for something to do. True: a request was answered completely.
    bool tick(int wait_ms = 0);

    // Serves until stop(), blocking: a request is answered as soon as it is there.
    void run();
    void stop();  // from any thread, or a signal handler

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ue_rl

#endif  // UE_RL_BRIDGE_HPP

#if defined(UE_RL_BRIDGE_IMPLEMENTATION) && !defined(UE_RL_BRIDGE_IMPLEMENTED)
#define UE_RL_BRIDGE_IMPLEMENTED

#include <algorithm>
#include <atomic>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <random>
#include <string_view>
#include <thread>
#include <type_traits>

#ifdef _WIN32
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <winsock2.h>
#include <ws2tcpip.h>
#include <windows.h>
#ifdef _MSC_VER
#pragma comment(lib, "ws2_32.lib")
#endif
#else
#include <arpa/inet.h>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#endif
#ifdef __linux__
#include <linux/futex.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#endif

// std::to_chars and std::from_chars of floats: libc++ came to them late, Apple's later. What takes their place below
// gives the same numbers, more slowly. Define UE_RL_OWN_FLOATS to try it.
#if defined(__cpp_lib_to_chars) && !defined(UE_RL_OWN_FLOATS)
#define UE_RL_CHARS_READ 1
#define UE_RL_CHARS_WRITE 1
#elif defined(_LIBCPP_VERSION) && !defined(__APPLE__) && !defined(UE_RL_OWN_FLOATS)
#define UE_RL_CHARS_READ (_LIBCPP_VERSION >= 200000)
#define UE_RL_CHARS_WRITE (_LIBCPP_VERSION >= 14000)
#else
#define UE_RL_CHARS_READ 0
#define UE_RL_CHARS_WRITE 0
#endif
#if !UE_RL_CHARS_READ
#include <locale.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif
#endif

#pragma push_macro("min")  // of <windows.h>, where another header brought it in without NOMINMAX
#pragma push_macro("max")
#undef min
#undef max

namespace ue_rl {

// What is wrong, and of which kind: the names of the golden vectors (MalformedMessage, WrongCount, ..).
struct Problem {
    std::string kind, text;
    explicit operator bool() const { return !kind.empty(); }
};

namespace detail {

// -- text

using View = std::string_view;
constexpr std::size_t call_limit = 1 << 20, most_bytes = std::size_t{1} << 29, most_pixels = 50331648;

inline bool blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
inline char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }
inline bool digit(char c) { return c >= '0' && c <= '9'; }
inline bool plain(char c) { return digit(c) || (upper(c) >= 'A' && upper(c) <= 'Z') || (c && std::strchr("-._~", c)); }

inline View trim(View text) {
    while (!text.empty() && blank(text.front())) text.remove_prefix(1);
    while (!text.empty() && blank(text.back())) text.remove_suffix(1);
    return text;
}

inline bool same(View text, View word) {  // `word` in capitals
    return text.size() == word.size() &&
           std::equal(text.begin(), text.end(), word.begin(), [](char a, char b) { return upper(a) == b; });
}

// The part before `separator`, which `rest` loses; all of it where there is none.
inline View cut(View& rest, View separator, bool* found = nullptr) {
    const std::size_t at = rest.find(separator);
    if (found) *found = at != View::npos;
    const View part = rest.substr(0, at);
    rest = at == View::npos ? View() : rest.substr(at + separator.size());
    return part;
}

inline std::string quoted(View text, View more = "") {
    static const char hex[] = "0123456789ABCDEF";
    std::string out;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (plain(c) || more.find(c) != View::npos) out += c;
        else (out += '%') += {hex[byte >> 4], hex[byte & 15]};
    }
    return out;
}

inline std::string name_text(View name) { return quoted(name, "/[]^*"); }

inline int hex_value(char c) {
    return digit(c) ? c - '0' : upper(c) >= 'A' && upper(c) <= 'F' ? upper(c) - 'A' + 10 : -1;
}

inline bool is_utf8(View text) {
    for (std::size_t i = 0; i < text.size();) {
        const auto c = static_cast<unsigned char>(text[i]);
        const std::size_t more = c < 0x80                ? 0
                                 : c >= 0xC2 && c < 0xE0 ? 1
                                 : c >= 0xE0 && c < 0xF0 ? 2
                                 : c >= 0xF0 && c < 0xF5 ? 3
                                                         : 9;
        if (more > 3 || i + more >= text.size()) return false;
        for (std::size_t k = 1; k <= more; k++)
            if ((text[i + k] & 0xC0) != 0x80) return false;
        const auto next = more ? static_cast<unsigned char>(text[i + 1]) : 0;
        if ((c == 0xE0 && next < 0xA0) || (c == 0xED && next > 0x9F) || (c == 0xF0 && next < 0x90) ||
            (c == 0xF4 && next > 0x8F))
            return false;
        i += more + 1;
    }
    return true;
}

// Percent-decodes; false: not percent-encoded UTF-8 of plain characters and `more`.
inline bool unquote(View text, std::string& out, View more = "") {
    out.clear();
    for (std::size_t i = 0; i < text.size(); i++) {
        if (text[i] == '%') {
            if (i + 2 >= text.size()) return false;
            const int high = hex_value(text[i + 1]), low = hex_value(text[i + 2]);
            if (high < 0 || low < 0) return false;
            out += static_cast<char>(high * 16 + low);
            i += 2;
        } else if (plain(text[i]) || more.find(text[i]) != View::npos) {
            out += text[i];
        } else {
            return false;
        }
    }
    return is_utf8(out);
}

// The first `most` bytes, cut between two characters of UTF-8.
inline std::string clipped(const std::string& text, std::size_t most) {
    if (text.size() <= most) return text;
    while (most && (text[most] & 0xC0) == 0x80) most--;
    return text.substr(0, most);
}

// For messages: its beginning, in printable characters.
inline std::string shown(View text) {
    std::string out(text.substr(0, 60));
    for (char& c : out)
        if (c < ' ' || c > '~') c = '?';
    return "'" + out + "'";
}

// -- numbers, whatever the locale

// std::from_chars of a number that begins with a digit or a point, after its sign. nullptr: there is none.
inline const char* parse_double(const char* first, const char* last, double& value, bool& out_of_range) {
#if UE_RL_CHARS_READ
    const auto result = std::from_chars(first, last, value);
    out_of_range = result.ec == std::errc::result_out_of_range;
    return result.ec == std::errc::invalid_argument ? nullptr : result.ptr;
#else
    const char* at = first + (*first == '-');
    std::size_t digits = 0;
    for (; at < last && digit(*at); at++) digits++;
    if (at < last && *at == '.')
        for (at++; at < last && digit(*at); at++) digits++;
    if (!digits) return nullptr;
    if (at < last && (*at == 'e' || *at == 'E')) {
        const char* power = at + 1 + (at + 1 < last && (at[1] == '+' || at[1] == '-'));
        if (power < last && digit(*power))
            for (at = power; at < last && digit(*at);) at++;
    }
    const std::string text(first, at);
#ifdef _WIN32
    static const _locale_t neutral = _create_locale(LC_ALL, "C");
    value = _strtod_l(text.c_str(), nullptr, neutral);
#else
    static const locale_t neutral = newlocale(LC_ALL_MASK, "C", nullptr);
    value = strtod_l(text.c_str(), nullptr, neutral);
#endif
    out_of_range = !std::isfinite(value);
    return at;
#endif
}

#if !UE_RL_CHARS_WRITE
// A text that reads back to the same number, nearly the shortest.
template <class Number>
inline std::size_t print_float(char* text, std::size_t room, Number value) {
    for (int digits = std::numeric_limits<Number>::digits10;; digits++) {  // %g leaves zeros at the end out
        const int size = std::snprintf(text, room, "%.*g", digits, static_cast<double>(value));
        double back = 0;
        bool unused = false;
        for (int i = 0; i < size; i++)
            if (!digit(text[i]) && !std::strchr("-+e", text[i])) text[i] = '.';  // a locale's decimal comma
        parse_double(text, text + size, back, unused);
        if (static_cast<Number>(back) == value || digits == std::numeric_limits<Number>::max_digits10)
            return static_cast<std::size_t>(size);
    }
}
#endif

template <class Number>
inline void append(std::string& out, Number value) {
    char text[40];
#if !UE_RL_CHARS_WRITE
    if constexpr (std::is_floating_point_v<Number>) {
        out.append(text, print_float(text, sizeof text, value));
        return;
    } else
#endif
        out.append(text, std::to_chars(text, text + sizeof text, value).ptr);
}

template <class Number>
inline std::string number_text(Number value) {
    std::string out;
    append(out, value);
    return out;
}

enum class Read { Ok, Malformed, NonFinite };

// Is a number that no double holds too large (and not too small)? It has the grammar's form.
inline bool is_huge(View text) {
    long long power = 0, given = 0;
    bool point = false, significant = false;
    std::size_t i = text[0] == '-' ? 1 : 0;
    for (; i < text.size() && (digit(text[i]) || text[i] == '.'); i++) {
        if (text[i] == '.') point = true;
        else if (significant || text[i] != '0') significant = true, power += point ? 0 : 1;
        else power -= point ? 1 : 0;
    }
    if (i == text.size()) return power > 0;
    const bool negative = text[++i] == '-';
    for (i += negative || text[i] == '+'; i < text.size(); i++)
        given = std::min(given * 10 + (text[i] - '0'), 1LL << 40);
    return power + (negative ? -given : given) > 0;
}

// Reads a number of the grammar at `at`, which then stands behind it and the blanks after it.
inline Read read_number(const char*& at, const char* end, double& value) {
    while (at < end && blank(*at)) at++;
    const char* first = at;
    if (first < end && *first == '+') first++;  // which from_chars does not take
    const char* digits = first + (first == at && first < end && *first == '-');
    if (digits >= end) return Read::Malformed;
    if (!digit(*digits) && *digits != '.')
        return std::strchr("iInN", *digits) && *digits ? Read::NonFinite : Read::Malformed;
    bool out_of_range = false;
    const char* behind = parse_double(first, end, value, out_of_range);
    if (!behind) return Read::Malformed;
    if (out_of_range || !std::isfinite(value)) {
        if (is_huge(View(first, static_cast<std::size_t>(behind - first)))) return Read::NonFinite;
        value = 0;
    }
    for (at = behind; at < end && blank(*at);) at++;
    return Read::Ok;
}

inline Read read_number(View text, double& value) {
    const char* at = text.data();
    const Read read = read_number(at, text.data() + text.size(), value);
    return read == Read::Ok && at != text.data() + text.size() ? Read::Malformed : read;
}

constexpr double beyond_float = 3.4028235677973366e38;  // what rounds to more than the largest float32

// Numbers with commas between them, at most `room`; `count` is how many there were.
inline Read read_floats(View text, float* out, std::size_t room, std::size_t& count) {
    const char *at = text.data(), *end = at + text.size();
    for (count = 0;;) {
        double value = 0;
        const Read read = read_number(at, end, value);
        if (read != Read::Ok) return read;
        if (!(std::fabs(value) < beyond_float)) return Read::NonFinite;
        if (count++ < room) out[count - 1] = static_cast<float>(value);
        if (at == end) return Read::Ok;
        if (*at++ != ',') return Read::Malformed;
    }
}

// Digits alone; false also for more than `most`.
inline bool read_integer(View text, std::uint64_t most, std::uint64_t& value) {
    value = 0;
    for (const char c : text) {
        if (!digit(c)) return false;
        const auto next = static_cast<std::uint64_t>(c - '0');
        if (value > (most - next) / 10) return false;
        value = value * 10 + next;
    }
    return !text.empty();
}

inline Problem number_problem(Read read, const std::string& where, View got) {
    if (read == Read::NonFinite) return {"NonFiniteValue", where + ": not a finite number: " + shown(got)};
    return {"MalformedMessage", where + ": numbers were expected, got " + shown(got)};
}

}  // namespace detail

// -- spaces

struct SpaceMaker {
    static Space leaf(const std::string& text, std::size_t count, const Choice& each, const char* wrong) {
        Space space;
        space.text_ = text;
        if (wrong) space.problem_ = wrong;
        else space.numbers_.assign(count, each);
        return space;
    }

    // How many numbers a shape has, which `text` gets; 0: it is none.
    static std::size_t size_of(const std::vector<int>& shape, std::string& text) {
        std::size_t size = 1;
        for (const int side : shape) {
            text += (text.back() == ')' ? "[" : ",") + detail::number_text(side);
            if (side < 1 || (size *= static_cast<std::size_t>(side)) > (1 << 24)) return 0;
        }
        if (!shape.empty()) text += ']';
        return size;
    }

    static Space box(const std::vector<Range>& ranges, const std::vector<int>& shape, Number type) {
        static const char* const types[] = {"", "FLOAT64", "UINT8", "INT8", "INT16", "UINT16", "INT32", "INT64"};
        const auto bound = [](double value) {
            return std::isinf(value) ? std::string(value < 0 ? "-inf" : "inf") : detail::number_text(value);
        };
        std::string text = "BOX(";
        bool ordered = !ranges.empty();
        for (const Range& range : ranges) {
            text += (text.back() == '(' ? "" : ",") + bound(range.low) + ":" + bound(range.high);
            ordered &= range.low <= range.high;
        }
        const std::size_t count = ranges.size(), size = size_of(shape, text += ')');
        const bool agree = shape.empty() || count == 1 || count == size;
        Space space = leaf(text + types[static_cast<int>(type)], shape.empty() ? count : size, {},
                           !ordered        ? "a range is low:high"
                           : size && agree ? nullptr
                                           : "its shape is not one of so many numbers");
        space.fits_row_ = shape.empty() && count == 1;
        return space;
    }

    static Space choices(std::string text, const std::vector<Choice>& choices, const std::vector<int>& shape) {
        constexpr std::int64_t most = std::int64_t{1} << 31;
        bool right = !choices.empty();
        for (const Choice& c : choices) {
            right &= c.count >= 1 && c.count <= 2 * most + 1 && c.low >= -most && c.low <= most - c.count + 1;
            text += text.back() == '(' ? "" : ",";
            if (c.low && right) text += detail::number_text(c.low) + ":" + detail::number_text(c.low + c.count - 1);
            else text += detail::number_text(c.count);
        }
        const std::size_t size = size_of(shape, text += ')');
        right &= shape.empty() || size == choices.size();
        Space space = leaf(text, 0, {}, right ? nullptr : "it has no such choices, or not of this shape");
        space.numbers_ = choices;
        return space;
    }

    static Space tree(const char* word, const std::vector<std::pair<std::string, Space>>& parts, bool named) {
        Space all = leaf(word, 0, {}, parts.empty() ? "it has no parts" : nullptr);
        all.leaves_ = 0;
        std::set<std::string> names;
        for (const auto& [name, part] : parts) {
            all.text_ += all.text_.back() == '(' ? "" : ",";
            if (named) all.text_ += detail::name_text(name) + ":";
            all.text_ += part.text_;
            all.numbers_.insert(all.numbers_.end(), part.numbers_.begin(), part.numbers_.end());
            all.height_ = std::max(all.height_, part.height_ + 1);
            all.leaves_ += part.leaves_;
            all.has_image_ |= part.has_image_;
            const bool own = !named || (detail::is_utf8(name) && !name.empty() && names.insert(name).second);
            if (all.problem_.empty()) all.problem_ = own ? part.problem_ : "each part has a name of its own";
            if (all.problem_.empty() && part.empty()) all.problem_ = "a part is no space";
        }
        all.text_ += ')';
        if (all.problem_.empty() && (all.height_ > 8 || all.leaves_ > 1024 || all.numbers_.size() > (1 << 24)))
            all.problem_ = "it is deeper than 8, or has more than 1024 parts or 2^24 numbers";
        return all;
    }

    static Space image() {
        Space space = leaf("IMAGE", 0, {}, nullptr);
        space.has_image_ = true;
        return space;
    }

    // What each of a row's numbers is; otherwise why `space` is none of `size` numbers.
    static std::string read(const Space& space, std::size_t size, std::vector<Choice>& numbers) {
        if (!space.problem_.empty()) return space.problem_;
        numbers = space.numbers_;
        if (space.fits_row_ || space.empty()) numbers.assign(size, {});
        if (numbers.size() == size) return "";
        return "it has " + detail::number_text(numbers.size()) + " numbers, not " + detail::number_text(size);
    }
    static bool has_image(const Space& space) { return space.has_image_; }
};

Space Box(double low, double high, const std::vector<int>& shape, Number type) {
    return SpaceMaker::box({{low, high}}, shape, type);
}
Space Box(const std::vector<Range>& ranges, const std::vector<int>& shape, Number type) {
    return SpaceMaker::box(ranges, shape, type);
}
Space Discrete(std::int64_t count, std::int64_t start) {
    return SpaceMaker::choices("DISCRETE(", {{count, start}}, {});
}
Space MultiDiscrete(const std::vector<Choice>& choices, const std::vector<int>& shape) {
    return SpaceMaker::choices("MULTI_DISCRETE(", choices, shape);
}
Space MultiBinary(int flags, const std::vector<int>& shape) {
    std::string text = "MULTI_BINARY(" + detail::number_text(flags) + ")";
    const std::size_t size = SpaceMaker::size_of(shape, text), count = flags > 0 ? static_cast<std::size_t>(flags) : 0;
    const bool right = count && count <= 262144 && (shape.empty() || size == count);
    return SpaceMaker::leaf(text, count, {2, 0}, right ? nullptr : "it has 1 to 262144 flags, as many as its shape");
}
Space Dict(const std::vector<std::pair<std::string, Space>>& parts) { return SpaceMaker::tree("DICT(", parts, true); }
Space Tuple(const std::vector<Space>& parts) {
    std::vector<std::pair<std::string, Space>> all;
    for (const Space& part : parts) all.emplace_back("", part);
    return SpaceMaker::tree("TUPLE(", all, false);
}
Space ImagePart() { return SpaceMaker::image(); }

// -- the handshake

void Layout::bad(const std::string& why) {
    if (problem.empty()) problem = why;
}

Layout::Layout(const Spec& spec) : image(spec.image) {
    using namespace detail;
    if (spec.obs_size < 1 || spec.act_size < 1 || spec.num_envs < 1 || spec.num_envs > 65536)
        bad("OBS and ACT are at least 1, ENV_COUNT is 1 to 65536");
    if (spec.version < 0 || spec.version > 1) bad("VERSION is 0 or 1");
    if (spec.env_type != EnvType::Multi && spec.num_envs != 1) bad("SINGLE and RLBASE have one env");
    std::set<std::string> names;
    for (const Parameter& p : spec.parameters)
        if (p.name.empty() || !names.insert(p.name).second || !std::isfinite(p.value) ||
            !(p.low <= p.value && p.value <= p.high))
            bad("PARAMS: " + p.name + ": a name of its own and a value between low and high were expected");
    const auto no_side = [](std::uint32_t side) { return side < 1 || side > 65535; };
    if ((image.height || image.width || image.channels || image.only) &&
        (no_side(image.height) || no_side(image.width) || no_side(image.channels)))
        bad("IMAGE: height, width and channels are 1 to 65535");
    if (spec.agents.empty()) {
        add_agents({"", 1, 0, 0, {}, {}, {}, {}}, spec);
    } else {
        names.clear();
        int obs = 0, act = 0;
        for (const Group& group : spec.agents) {
            if (group.name.empty() || !names.insert(group.name).second || group.count < 1)
                bad("AGENTS: a name of its own and a count of 1 or more were expected");
            else if (agents.size() + static_cast<std::size_t>(group.count) > 4096)
                bad("AGENTS: at most 4096 in one env");
            else add_agents(group, spec);
            obs = std::max(obs, group.obs_size ? group.obs_size : spec.obs_size);
            act = std::max(act, group.act_size ? group.act_size : spec.act_size);
        }
        if (obs != spec.obs_size || act != spec.act_size)
            bad("OBS and ACT are those of the group with the most numbers");
        if (spec.env_type != EnvType::Multi || spec.channel == Channel::PerEnv || image.bytes())
            bad("AGENTS need ENV_TYPE=MULTI and the shared channel, and have no images");
    }
    const auto size = [](int n) { return static_cast<std::size_t>(std::max(n, 1)); };
    envs = size(spec.num_envs), obs_size = size(spec.obs_size), act_size = size(spec.act_size);
    per_env = std::max<std::size_t>(1, agents.size());
    rows = envs * per_env;
    const std::size_t widest = std::max(obs_size + 1, act_size);
    if (rows > 65536 || rows * widest > (1 << 25)) bad("too many rows, or numbers in them");
    if (image.bytes() && rows * image.bytes() > (std::size_t{1} << 32)) bad("IMAGE: 2^32 bytes at most for all envs");
    const bool wide =
        spec.features.count(Feature::Info) || spec.features.count(Feature::Options) || !spec.parameters.empty();
    max_line = std::min(1024 + 48 * rows * widest + ((wide ? 65536 : 64) + mask_size) * rows, most_bytes);
    calls = spec.version && (!spec.parameters.empty() || spec.features.count(Feature::TimeScale) ||
                             spec.features.count(Feature::Pause) || spec.features.count(Feature::Render) ||
                             spec.features.count(Feature::GoalReward));
    rings = calls || spec.features.count(Feature::Options) || spec.features.count(Feature::Info);
    config = write(spec);
    if (config.size() > 65000) bad("the handshake is longer than 64 KiB");
    if (problem.empty()) return;
    envs = per_env = rows = obs_size = act_size = 1;  // nobody is served: no room is taken for what may be millions
    mask_size = 0;
    image = {};
}

void Layout::add_agents(const Group& group, const Spec& spec) {
    using namespace detail;
    const int obs = group.obs_size ? group.obs_size : spec.obs_size,
              act = group.act_size ? group.act_size : spec.act_size;
    const Space& act_space = group.act_space.empty() ? spec.act_space : group.act_space;
    const Space& obs_space = group.obs_space.empty() ? spec.obs_space : group.obs_space;
    if (obs < 1 || act < 1 || obs > 1 << 24 || act > 1 << 24) return bad("OBS and ACT are 1 to 16777216");
    Agent agent{static_cast<std::size_t>(obs), static_cast<std::size_t>(act), 0, {}};
    std::vector<Choice> unused;
    std::string wrong = SpaceMaker::read(act_space, agent.act_size, agent.choices);
    if (!wrong.empty()) bad("ACT_SPACE " + act_space.text() + ": " + wrong);
    wrong = obs_space.empty() ? "" : SpaceMaker::read(obs_space, agent.obs_size, unused);
    const bool has_image = SpaceMaker::has_image(obs_space);
    if (!wrong.empty() && !(has_image && unused.empty() && obs == 1))
        bad("OBS_SPACE " + obs_space.text() + ": " + wrong);
    if (image.bytes() && !obs_space.empty() && !same(View(obs_space.text()).substr(0, 3), "BOX") && !has_image)
        bad("OBS_SPACE names no place for the IMAGE");
    const auto& obs_names = group.obs_names.empty() ? spec.obs_names : group.obs_names;
    const auto& act_names = group.act_names.empty() ? spec.act_names : group.act_names;
    if ((!obs_names.empty() && obs_names.size() != agent.obs_size) ||
        (!act_names.empty() && act_names.size() != agent.act_size))
        bad("OBS_NAMES and ACT_NAMES have one name for each number");
    std::int64_t flags = 0;
    for (const Choice& choice : agent.choices) flags += choice.count;
    has_choices |= flags > 0;
    if (spec.features.count(Feature::Mask)) {
        if (flags > 67108864) return bad("a mask has too many flags");
        agent.mask_size = static_cast<std::size_t>(flags);
    }
    mask_size = std::max(mask_size, agent.mask_size);
    agents.insert(agents.end(), static_cast<std::size_t>(group.count), agent);
}

std::string Layout::write(const Spec& spec) const {
    using namespace detail;
    static const char* const types[] = {"MULTI", "SINGLE", "RLBASE"};
    static const char* const channels[] = {"ANY", "SHARED", "PER_ENV"};
    static const char* const features[] = {"SEED",       "OPTIONS", "TRUNC",  "INFO",       "MASK",
                                           "TIME_SCALE", "PAUSE",   "RENDER", "GOAL_REWARD", "DEMO"};
    std::string out = "CONFIG:OBS=" + number_text(spec.obs_size) + ";ACT=" + number_text(spec.act_size);
    out += std::string(";ENV_TYPE=") + types[static_cast<int>(spec.env_type)];
    if (spec.env_type == EnvType::Multi) out += ";ENV_COUNT=" + number_text(spec.num_envs);
    if (!spec.version) return out;
    const auto field = [&](const std::string& key, const std::string& value) {
        if (!value.empty()) out += ";" + key + "=" + value;
    };
    const auto names = [](const std::vector<std::string>& all) {
        std::string text;
        for (const auto& name : all) text += (text.empty() ? "" : ",") + name_text(name);
        return text;
    };
    field("VERSION", number_text(spec.version));
    field("CHANNEL", channels[static_cast<int>(spec.agents.empty() ? spec.channel : Channel::Shared)]);
    field("ACT_SPACE", spec.act_space.text());
    field("OBS_SPACE", spec.obs_space.text());
    std::string text = "ERROR";                            // it says why it ends a session
    if (spec.env_type != EnvType::RlBase) text += ",SEQ";  // answers say to what
    for (const Feature feature : spec.features) (text += ',') += features[static_cast<int>(feature)];
    field("FEATURES", text);
    const auto side = [](std::uint32_t n) { return number_text(n) + ","; };
    const std::string size = side(image.height) + number_text(image.width);
    if (image.bytes())
        field("IMAGE", (image.planes ? "CHW(" + side(image.channels) + size
                                     : "HWC(" + size + "," + number_text(image.channels)) +
                           (image.only ? "),ONLY" : ")"));
    field("OBS_NAMES", names(spec.obs_names));
    field("ACT_NAMES", names(spec.act_names));
    text.clear();
    for (const Parameter& p : spec.parameters) {
        text += (text.empty() ? "" : ",") + name_text(p.name) + ":" + number_text(p.value);
        constexpr double most = std::numeric_limits<double>::max();  // a bound is a number
        if (std::isfinite(p.low) || std::isfinite(p.high))
            text += ":" + number_text(std::max(p.low, -most)) + ":" + number_text(std::min(p.high, most));
    }
    field("PARAMS", text);
    text.clear();
    for (const Group& group : spec.agents)
        text += (text.empty() ? "" : ",") + name_text(group.name) + ":" + number_text(group.count);
    field("AGENTS", text);
    for (const Group& group : spec.agents) {
        const std::string of = "." + name_text(group.name);
        if (group.obs_size) field("OBS" + of, number_text(group.obs_size));
        if (group.act_size) field("ACT" + of, number_text(group.act_size));
        field("OBS_SPACE" + of, group.obs_space.text());
        field("ACT_SPACE" + of, group.act_space.text());
        field("OBS_NAMES" + of, names(group.obs_names));
        field("ACT_NAMES" + of, names(group.act_names));
    }
    return out;
}

// -- the game

// What the trainer asks: one entry for each row.
struct Inbox {
    enum : std::uint8_t { Nothing, Step, ResetEnv };
    std::vector<std::uint8_t> command;                                    // [rows]; of a reset all rows of its env
    std::vector<float> actions;                                           // [rows, act_size]
    std::vector<std::int64_t> seeds;                                      // [envs], -1: none
    std::map<int, std::string> options;                                   // env -> JSON
    std::map<int, std::vector<std::pair<std::size_t, double>>> settings;  // env -> parameter and value, beside a reset
    std::vector<std::uint8_t> answered;                                   // [envs]
    std::vector<std::uint64_t> seqs;                                      // [envs]: of its request; 0: none
    std::uint64_t seq = 0;                                                // of the line that is read
    std::size_t open = 0;                                                 // envs that were asked and not answered

    void clear(const Layout& layout) {
        command.assign(layout.rows, Nothing);
        actions.assign(layout.rows * layout.act_size, 0.0f);
        seeds.assign(layout.envs, -1);
        answered.assign(layout.envs, 0);
        seqs.assign(layout.envs, 0);
        options.clear();
        settings.clear();
        open = 0;
    }
};

void VectorBridge::Update(Inbox& inbox, States& states) {
    const std::size_t per_env = layout.per_env;
    rows_.clear();
    resets_.clear();
    for (std::size_t row = 0; row < inbox.command.size(); row++) {
        const std::size_t env = row / per_env;
        if (inbox.command[row] == Inbox::Nothing) continue;
        inbox.answered[env] = 1;
        states.present[row] = 1;
        if (inbox.command[row] == Inbox::Step) {
            rows_.push_back(static_cast<int>(row));
            continue;
        }
        states.rewards[row] = 0;
        states.dones[row] = states.truncateds[row] = 0;
        if (row % per_env) continue;
        const auto options = inbox.options.find(static_cast<int>(env));
        resets_.push_back(
            {static_cast<int>(env), inbox.seeds[env], options == inbox.options.end() ? "" : options->second});
    }
    if (!rows_.empty()) StepEnvs(inbox.actions.data(), rows_, states);
    if (!resets_.empty()) ResetEnvs(resets_, states);
}

void MultiEnvBridge::Update(Inbox& inbox, States& states) {
    const std::size_t envs = inbox.command.size();
    started_.resize(envs);
    for (std::size_t i = 0; i < envs; i++) {
        const int env = static_cast<int>(i);
        if (inbox.command[i] == Inbox::Nothing || inbox.answered[i] || started_[i]) continue;
        started_[i] = 1;
        if (inbox.command[i] == Inbox::Step) {
            HandleResponseActionsForEnv(env, &inbox.actions[i * layout.act_size]);
            continue;
        }
        const auto options = inbox.options.find(env);
        HandleResetForEnv(env, {env, inbox.seeds[i], options == inbox.options.end() ? "" : options->second});
    }
    for (std::size_t i = 0; i < envs; i++) {
        const int env = static_cast<int>(i);
        const bool step = inbox.command[i] == Inbox::Step;
        if (!started_[i] || (step ? IsActionRunningForEnv(env) : IsResetRunningForEnv(env))) continue;
        started_[i] = 0;
        bool done = false, truncated = false;
        CreateStateForEnv(env, states.obs + i * layout.obs_size);
        states.rewards[i] = step ? CalculateRewardForEnv(env, done, truncated) : 0;
        states.dones[i] = done || truncated;
        states.truncateds[i] = truncated;
        states.present[i] = 1;
        if (layout.mask_size) CreateMaskForEnv(env, states.masks + i * layout.mask_size);
        if (states.image) CreateImageForEnv(env, states.image + i * layout.image.bytes());
        std::string info = CreateInfoForEnv(env);
        if (!info.empty()) states.infos[env] = std::move(info);
        inbox.answered[i] = 1;
    }
}
void MultiEnvBridge::Forget() { std::fill(started_.begin(), started_.end(), std::uint8_t{0}); }

namespace detail {

// -- requests

inline Problem read_settings(View text, const Spec& spec, std::vector<std::pair<std::size_t, double>>& out) {
    std::set<std::string> names;
    for (bool more = true; more;) {
        View part = cut(text, ",", &more);
        std::string name;
        bool colon = false;
        const View name_part = trim(cut(part, ":", &colon));
        if (!colon || !unquote(name_part, name, "/[]^*") || name.empty())
            return {"MalformedMessage", "SET: name:value was expected, got " + shown(name_part)};
        if (!names.insert(name).second) return {"MalformedMessage", "SET: a parameter comes twice: " + shown(name)};
        double value = 0;
        if (const Read read = read_number(trim(part), value); read != Read::Ok)
            return number_problem(read, "SET of " + name, part);
        const auto found = std::find_if(spec.parameters.begin(), spec.parameters.end(),
                                        [&](const Parameter& p) { return p.name == name; });
        if (found == spec.parameters.end()) return {"MalformedMessage", "SET: there is no parameter " + shown(name)};
        if (!(found->low <= value && value <= found->high))
            return {"MalformedMessage", "SET of " + name + ": out of range: " + shown(part)};
        out.emplace_back(static_cast<std::size_t>(found - spec.parameters.begin()), value);
    }
    return {};
}

inline Problem misplaced_seq() { return {"MalformedMessage", "SEQ stands once, at the end of the line"}; }

// One row; `only_env`: whose socket it came on, -1: the shared channel.
inline Problem read_ask(View row, int only_env, const Bridge& bridge, Inbox& inbox) {
    const Spec& spec = bridge.spec;
    const Layout& layout = bridge.layout;
    static const char* const keys[] = {"ACT", "ENV", "AGENT", "SEED", "OPTIONS", "SET"};
    enum { Act, Env, AgentId, Seed, Options, Settings, Count };
    View given[Count];
    bool has[Count] = {};
    for (bool more = true; more;) {
        View field = trim(cut(row, ";", &more));
        if (field.empty() && !more) break;
        bool equals = false;
        const View key = trim(cut(field, "=", &equals));
        if (!equals || key.empty()) return {"MalformedMessage", "a field without a value: " + shown(key)};
        if (spec.version && same(key, "SEQ")) return misplaced_seq();
        for (int i = 0; i < Count; i++) {
            if (!same(key, keys[i])) continue;
            if (has[i]) return {"MalformedMessage", std::string(keys[i]) + " comes twice"};
            has[i] = true;
            given[i] = trim(field);
        }
    }
    if (!has[Act]) return {"MalformedMessage", "a request has no ACT"};
    std::uint64_t env = 0, agent = 0;
    if (has[Env] && !read_integer(given[Env], 1000000000, env))
        return {"MalformedMessage", "ENV: an integer was expected, got " + shown(given[Env])};
    if (!has[Env] && only_env >= 0) env = static_cast<std::uint64_t>(only_env);
    else if (!has[Env] && spec.env_type == EnvType::Multi) return {"MalformedMessage", "ENV is missing"};
    const std::string where = "env " + number_text(env);
    if (env >= static_cast<std::uint64_t>(spec.num_envs)) return {"UnknownEnv", where + ": there is no such env"};
    if (only_env >= 0 && env != static_cast<std::uint64_t>(only_env))
        return {"UnknownEnv", where + ": the socket is that of env " + number_text(only_env)};
    const std::size_t per_env = layout.per_env;
    const bool reset = same(given[Act], "RESET"), with_agents = !spec.agents.empty();
    if (has[AgentId] && with_agents && reset)
        return {"MalformedMessage", where + ": an env is reset as a whole, without AGENT"};
    if (with_agents && !reset) {
        if (!has[AgentId] || !read_integer(given[AgentId], 1000000000, agent))
            return {"MalformedMessage", where + ": AGENT is missing, or no integer"};
        if (agent >= per_env) return {"UnknownEnv", where + ": there is no agent " + number_text(agent)};
    }
    const std::size_t first = env * per_env, at = first + agent;
    std::uint8_t *const begin = &inbox.command[first], *const end = begin + per_env;
    if (inbox.answered[env] || (reset ? std::any_of(begin, end, [](auto c) { return c != 0; })
                                      : inbox.command[at] || *begin == Inbox::ResetEnv))
        return {"RepeatedEnv", where + ": it was asked again before it was answered"};
    if (std::none_of(begin, end, [](auto c) { return c != 0; })) inbox.open++;
    inbox.seqs[env] = inbox.seq;
    if (reset) {
        std::uint64_t seed = 0;
        if (has[Seed]) {
            if (!read_integer(given[Seed], INT64_MAX, seed))
                return {"MalformedMessage", where + ": SEED: 0 to 2^63-1 was expected, got " + shown(given[Seed])};
            inbox.seeds[env] = static_cast<std::int64_t>(seed);
        }
        if (has[Options]) {
            std::string text;
            if (!unquote(given[Options], text) || trim(text).size() < 2 || trim(text).front() != '{' ||
                trim(text).back() != '}')
                return {"MalformedMessage", where + ": OPTIONS: a percent-encoded JSON object was expected"};
            inbox.options[static_cast<int>(env)] = text;
        }
        if (has[Settings])
            if (Problem problem = read_settings(given[Settings], spec, inbox.settings[static_cast<int>(env)]))
                return problem;
        std::fill(begin, end, Inbox::ResetEnv);
        return {};
    }
    const std::size_t wanted = layout.agents[agent].act_size;
    std::size_t count = 0;
    const Read read = read_floats(given[Act], &inbox.actions[at * layout.act_size], wanted, count);
    if (read != Read::Ok) return number_problem(read, where + ": ACT", given[Act]);
    if (count != wanted)
        return {"WrongCount", where + ": ACT has " + number_text(count) + " numbers, expected " + number_text(wanted)};
    inbox.command[at] = Inbox::Step;
    return {};
}

// Cuts the number at the end of a line off: it is echoed and never judged. 0: none.
inline Problem cut_seq(View& line, std::uint64_t& number) {
    const std::size_t at = line.rfind(';');
    View field = at == View::npos ? View() : line.substr(at + 1);
    number = 0;
    if (!same(trim(cut(field, "=")), "SEQ")) return {};
    if (!read_integer(trim(field), 999999999999999999, number) || !number)
        return {"MalformedMessage", "SEQ: 1 to 18 digits, from 1, were expected, got " + shown(field)};
    line = line.substr(0, at);
    return {};
}

inline Problem read_request(View line, int only_env, const Bridge& bridge, Inbox& inbox) {
    if (bridge.spec.env_type == EnvType::RlBase) {  // no keys
        line = trim(line);
        const std::string row = "ACT=" + std::string(line);
        if (line.find_first_of(";|=") != View::npos)
            return {"MalformedMessage", "RESET or numbers were expected, got " + shown(line)};
        return read_ask(row, 0, bridge, inbox);
    }
    if (bridge.spec.version)
        if (Problem problem = cut_seq(line, inbox.seq)) return problem;
    for (bool more = true; more;) {
        const View row = cut(line, "||", &more);
        if (more && only_env >= 0) return {"MalformedMessage", "an env's own socket carries no batch"};
        if (Problem problem = read_ask(row, only_env, bridge, inbox)) return problem;
    }
    return {};
}

// Actions that are no choice of a discrete space. 0.5 must not become a choice by rounding.
inline Problem check_choices(const Bridge& bridge, const Inbox& inbox) {
    const Layout& layout = bridge.layout;
    if (!layout.has_choices) return {};
    const std::size_t width = layout.act_size, per_env = layout.per_env;
    for (std::size_t row = 0; row < layout.rows; row++) {
        if (inbox.command[row] != Inbox::Step || inbox.answered[row / per_env]) continue;
        const auto& choices = layout.agents[row % per_env].choices;
        for (std::size_t i = 0; i < choices.size(); i++) {
            const float value = inbox.actions[row * width + i];
            const auto low = static_cast<float>(choices[i].low),
                       high = static_cast<float>(choices[i].low + choices[i].count - 1);
            if (choices[i].count && !(value >= low && value <= high && std::nearbyint(value) == value))
                return {"MalformedMessage", "env " + number_text(row / per_env) + ": ACT: the action " +
                                                number_text(value) + " is not a choice of its space"};
        }
    }
    return {};
}

// -- answers

inline bool all_finite(const float* numbers, std::size_t count) {
    std::uint32_t bad = 0;
    for (std::size_t i = 0; i < count; i++) {
        std::uint32_t bits;
        std::memcpy(&bits, numbers + i, 4);
        bad |= (bits & 0x7F800000u) == 0x7F800000u;
    }
    return !bad;
}

// What the game wrote for the envs that were answered: numbers, flags, masks.
inline Problem check_states(const Bridge& bridge, const Inbox& inbox, States& states) {
    const Layout& layout = bridge.layout;
    const std::size_t width = layout.obs_size, per_env = layout.per_env;
    for (std::size_t row = 0; row < layout.rows; row++) {
        if (!inbox.answered[row / per_env] || !states.present[row]) continue;
        if (!all_finite(states.obs + row * width, layout.agents[row % per_env].obs_size) ||
            !all_finite(states.rewards + row, 1))
            return {"NonFiniteValue", "env " + number_text(row / per_env) +
                                          ": the game gave an observation or a reward that is not a finite number"};
        states.truncateds[row] = states.truncateds[row] != 0;
        states.dones[row] = states.dones[row] || states.truncateds[row];
    }
    return {};
}

inline void append_state(std::string& out, const Bridge& bridge, const States& states, std::size_t row, bool with_env) {
    const Spec& spec = bridge.spec;
    const Layout& layout = bridge.layout;
    const std::size_t per_env = layout.per_env;
    const Layout::Agent& agent = layout.agents[row % per_env];
    const bool keys = spec.env_type != EnvType::RlBase;
    if (keys) out += "OBS=";
    const float* obs = states.obs + row * layout.obs_size;
    for (std::size_t i = 0; i < agent.obs_size; i++) {
        if (i) out += ',';
        append(out, obs[i]);
    }
    out += keys ? ";REW=" : ";";
    append(out, states.rewards[row]);
    out += keys ? ";DONE=" : ";";
    out += states.dones[row] ? '1' : '0';
    if (!keys) return;
    if (with_env) append(out += ";ENV=", row / per_env);
    if (!spec.agents.empty()) append(out += ";AGENT=", row % per_env);
    if (states.truncateds[row] && spec.features.count(Feature::Trunc)) out += ";TRUNC=1";
    if (agent.mask_size) {
        const std::uint8_t* mask = states.masks + row * layout.mask_size;
        if (std::find(mask, mask + agent.mask_size, 0) != mask + agent.mask_size) {  // otherwise all is legal
            out += ";MASK=";
            for (std::size_t i = 0; i < agent.mask_size; i++) out += mask[i] ? '1' : '0';
        }
    }
    const auto info = states.infos.find(static_cast<int>(row));
    if (info != states.infos.end() && spec.features.count(Feature::Info)) out += ";INFO=" + quoted(info->second);
}

inline void append_seq(std::string& out, std::uint64_t seq) {
    if (seq) append(out += ";SEQ=", seq);
}

inline std::string error_line(const std::string& why) { return "ERROR=" + quoted(clipped(why, 330)) + "\n"; }

// Seconds in which a first connection must say something where others wait, and where they may be its env sockets: the
// plugin's own trainer is silent on all of them until each of its worker processes runs.
inline double silence = 30, starting = 900;

inline std::string busy_line(double since, const std::string& peer) {
    return "BUSY;SINCE=" + number_text(std::floor(since * 10) / 10) + (peer.empty() ? "" : ";PEER=" + peer) + "\n";
}

// -- calls

inline View call_name(View line) {
    const View word = trim(trim(line).substr(0, std::min(trim(line).find_first_of("=;"), trim(line).size())));
    for (const char* name : {"GET", "SET", "TIME_SCALE", "PAUSE", "RENDER", "GOALS"})
        if (same(word, name)) return name;
    return {};
}

inline std::string base64(const std::vector<std::uint8_t>& bytes) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    out.reserve((bytes.size() + 2) / 3 * 4);
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        const std::size_t left = bytes.size() - i;
        const unsigned bits =
            static_cast<unsigned>(bytes[i] << 16 | (left > 1 ? bytes[i + 1] << 8 : 0) | (left > 2 ? bytes[i + 2] : 0));
        out += {letters[bits >> 18], letters[bits >> 12 & 63], left > 1 ? letters[bits >> 6 & 63] : '=',
                left > 2 ? letters[bits & 63] : '='};
    }
    return out;
}

inline Problem read_goals(View text, Goals& goals) {
    for (bool more = true; more; goals.pairs++) {
        View desired = cut(text, "||", &more);
        bool slash = false;
        const View achieved = cut(desired, "/", &slash);
        if (!slash) return {"MalformedMessage", "GOALS: achieved/desired was expected"};
        const auto side = [&](View numbers, std::vector<float>& all, std::size_t& size) -> Problem {
            const auto room = static_cast<std::size_t>(std::count(numbers.begin(), numbers.end(), ',') + 1),
                       old = all.size();
            std::size_t count = 0;
            all.resize(old + room);
            if (const Read read = read_floats(numbers, all.data() + old, room, count); read != Read::Ok)
                return number_problem(read, "GOALS", numbers);
            if (goals.pairs && count != size) return {"WrongCount", "GOALS: goals of one call have different sizes"};
            size = count;
            return {};
        };
        if (Problem problem = side(achieved, goals.achieved, goals.achieved_size)) return problem;
        if (Problem problem = side(desired, goals.desired, goals.desired_size)) return problem;
    }
    return {};
}

// The answer to a call, without line feed; `problem` says why it is refused, which costs the session nothing.
inline std::string answer_call(Bridge& bridge, View line, Problem& problem) {
    const auto refuse = [&](const char* kind, const std::string& why) {
        problem = {kind, why};
        return std::string();
    };
    const View name = call_name(line);
    View rest = trim(line), first = cut(rest, ";"), value = first;
    cut(value, "=");
    value = trim(value);
    int env = -1;
    while (!rest.empty()) {
        View field = trim(cut(rest, ";"));
        bool equals = false;
        const View key = trim(cut(field, "=", &equals));
        if (!equals && !key.empty()) return refuse("MalformedMessage", "a field has no value");
        if (same(key, "SEQ")) return problem = misplaced_seq(), std::string();
        if (!same(key, "ENV") || (name != "GET" && name != "SET" && name != "RENDER")) continue;
        std::uint64_t number = 0;
        if (env >= 0) return refuse("MalformedMessage", "ENV comes twice");
        if (!read_integer(trim(field), 999999999, number))
            return refuse("MalformedMessage", "ENV: an integer was expected");
        if (number >= static_cast<std::uint64_t>(bridge.spec.num_envs))
            return refuse("UnknownEnv", "there is no env " + number_text(number));
        env = static_cast<int>(number);
    }
    if (value.empty() && name != "GET" && name != "RENDER")
        return refuse("MalformedMessage", std::string(name) + " needs a value");
    std::string refusal;
    if (name == "GET" || name == "SET") {
        const auto& known = bridge.spec.parameters;
        std::vector<std::size_t> wanted;
        if (name == "SET") {
            std::vector<std::pair<std::size_t, double>> settings;
            if ((problem = read_settings(value, bridge.spec, settings))) return {};
            for (const auto& [parameter, number] : settings)
                bridge.SetParameter(parameter, number, env), wanted.push_back(parameter);
        } else if (value.empty()) {
            for (std::size_t i = 0; i < known.size(); i++) wanted.push_back(i);
        }
        for (bool more = name == "GET" && !value.empty(); more;) {
            std::string text;
            if (!unquote(trim(cut(value, ",", &more)), text, "/[]^*"))
                return refuse("MalformedMessage", "GET: names were expected");
            const auto found =
                std::find_if(known.begin(), known.end(), [&](const Parameter& p) { return p.name == text; });
            if (found == known.end()) return refuse("MalformedMessage", "there is no parameter " + shown(text));
            wanted.push_back(static_cast<std::size_t>(found - known.begin()));
        }
        if (wanted.empty()) return refuse("MalformedMessage", "this engine has no parameters");
        std::string out;
        for (const std::size_t i : wanted)
            out += (out.empty() ? "VALUES=" : ",") + name_text(known[i].name) + ":" +
                   number_text(bridge.GetParameter(i, std::max(env, 0)));
        return out;
    }
    if (name == "RENDER") {
        Picture picture;
        refusal = bridge.Render(std::max(env, 0), picture);
        if (!refusal.empty()) return refuse("CommandFailed", refusal);
        const auto size = [](int n) { return static_cast<std::size_t>(std::clamp(n, 0, 65535)); };
        const std::size_t bytes = size(picture.height) * size(picture.width) * size(picture.channels);
        if (picture.channels > 4 || !bytes || bytes > most_pixels || picture.pixels.size() != bytes)
            return refuse("CommandFailed", "the game's picture has a wrong size");
        return "PICTURE=" + number_text(picture.height) + "," + number_text(picture.width) + "," +
               number_text(picture.channels) + ";DATA=" + base64(picture.pixels);
    }
    if (name == "GOALS") {
        Goals goals;
        if ((problem = read_goals(value, goals))) return {};
        std::vector<float> rewards;
        refusal = bridge.ComputeRewards(goals, rewards);
        if (!refusal.empty()) return refuse("CommandFailed", refusal);
        if (rewards.size() != goals.pairs || !all_finite(rewards.data(), rewards.size()))
            return refuse("CommandFailed", "the game gave a wrong number of rewards, or one that is not finite");
        std::string out = "REW=";
        for (std::size_t i = 0; i < rewards.size(); i++) append(i ? out += ',' : out, rewards[i]);
        return out;
    }
    double number = 0;
    if (const Read read = read_number(value, number); read != Read::Ok)
        return problem = number_problem(read, std::string(name), value), std::string();
    if (name == "PAUSE" ? number != 0 && number != 1 : !(number > 0))
        return refuse("MalformedMessage", std::string(name) + ": out of range: " + shown(value));
    refusal = name == "PAUSE" ? bridge.SetPaused(number == 1) : bridge.SetTimeScale(number);
    return refusal.empty() ? "OK" : refuse("CommandFailed", refusal);
}

// Calls `callback`; an exception of the game's, or its Fail(), becomes a sentence.
template <class Callback>
Problem guarded(Bridge& bridge, Callback callback) {
    Problem problem;
#if defined(__cpp_exceptions) || defined(_CPPUNWIND)
    try {
        problem = callback();
    } catch (const std::exception& error) { bridge.Fail(error.what()); } catch (...) {
        bridge.Fail("an exception without a text");
    }
#else
    problem = callback();
#endif
    const std::string failure = bridge.TakeFailure();
    return failure.empty() ? problem : Problem{"GameFailed", "the game's code failed: " + failure};
}

// -- the system

#ifdef _WIN32
using Socket = SOCKET;
using PollItem = WSAPOLLFD;
constexpr Socket no_socket = INVALID_SOCKET;
inline void close_socket(Socket s) { closesocket(s); }
inline bool would_block() { return WSAGetLastError() == WSAEWOULDBLOCK; }
inline int poll_sockets(std::vector<PollItem>& items, int ms) {
    return WSAPoll(items.data(), static_cast<ULONG>(items.size()), ms);
}
inline void non_blocking(Socket s) {
    u_long on = 1;
    ioctlsocket(s, FIONBIO, &on);
    SetHandleInformation(reinterpret_cast<HANDLE>(s), HANDLE_FLAG_INHERIT, 0);  // else a child would hold the port
}
// An end without TIME_WAIT, in which the port could not be listened on again.
inline void close_hard(Socket s) {
    const linger now = {1, 0};
    setsockopt(s, SOL_SOCKET, SO_LINGER, reinterpret_cast<const char*>(&now), sizeof now);
}
inline void start_sockets() {
    WSADATA data;
    WSAStartup(MAKEWORD(2, 2), &data);
}
using SendSize = int;
constexpr int send_flags = 0;
inline std::uint32_t process_id() { return GetCurrentProcessId(); }
#else
using Socket = int;
using PollItem = pollfd;
constexpr Socket no_socket = -1;
inline void close_socket(Socket s) { ::close(s); }
inline bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }
inline int poll_sockets(std::vector<PollItem>& items, int ms) {
    return ::poll(items.data(), static_cast<nfds_t>(items.size()), ms);
}
inline void non_blocking(Socket s) {
    fcntl(s, F_SETFL, fcntl(s, F_GETFL, 0) | O_NONBLOCK);
    fcntl(s, F_SETFD, FD_CLOEXEC);
}
inline void close_hard(Socket) {}  // SO_REUSEADDR does it
inline void start_sockets() {}
using SendSize = std::size_t;
#ifdef MSG_NOSIGNAL
constexpr int send_flags = MSG_NOSIGNAL;
#else
constexpr int send_flags = 0;  // macOS: SO_NOSIGPIPE, see Connection
#endif
inline std::uint32_t process_id() { return static_cast<std::uint32_t>(getpid()); }
#endif

// When a process started, in the system's unit: tells a reused pid; 0: unknown.
inline std::uint64_t process_start(std::uint32_t pid) {
#ifdef __linux__
    char text[2048];
    std::FILE* file = std::fopen(("/proc/" + number_text(pid) + "/stat").c_str(), "re");
    if (!file) return 0;
    const std::size_t size = std::fread(text, 1, sizeof text, file);
    std::fclose(file);
    View rest(text, size);
    rest.remove_prefix(std::min(rest.rfind(')'), rest.size()));  // the name may hold anything
    for (int i = 0; i < 20; i++) cut(rest, " ");
    std::uint64_t value = 0;
    return read_integer(cut(rest, " "), UINT64_MAX, value) ? value : 0;
#elif defined(_WIN32)
    FILETIME made{}, ended, kernel, user;
    HANDLE process = OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, FALSE, pid);
    if (!process) return 0;
    GetProcessTimes(process, &made, &ended, &kernel, &user);
    CloseHandle(process);
    return std::uint64_t{made.dwHighDateTime} << 32 | made.dwLowDateTime;
#else
    return (void)pid, 0;
#endif
}

inline std::uint64_t process_namespace() {
#ifdef __linux__
    struct stat info;
    return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
#else
    return 0;
#endif
}

inline bool process_alive(std::uint32_t pid, std::uint64_t start) {
#ifdef _WIN32
    HANDLE process = OpenProcess(SYNCHRONIZE, FALSE, pid);
    if (!process) return GetLastError() == ERROR_ACCESS_DENIED;
    const bool alive = WaitForSingleObject(process, 0) == WAIT_TIMEOUT;
    CloseHandle(process);
    if (!alive) return false;
#else
    if (kill(static_cast<pid_t>(pid), 0) < 0 && errno == ESRCH) return false;
#endif
    const std::uint64_t now = start ? process_start(pid) : 0;
    return !now || now == start;
}

#ifndef __linux__
inline void nap(int microseconds) {
#ifdef _WIN32
    // Sleep(1) may take 15.6 ms; a timer of high resolution, which Windows 10 has since 1803, takes less than one.
    thread_local const HANDLE timer = CreateWaitableTimerExW(nullptr, nullptr, 2, TIMER_ALL_ACCESS);
    LARGE_INTEGER due;
    due.QuadPart = -10 * microseconds;
    if (timer && SetWaitableTimer(timer, &due, 0, nullptr, nullptr, FALSE)) {
        WaitForSingleObject(timer, INFINITE);
        return;
    }
#endif
    std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}
#endif

inline double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// -- tokens: docs/protocol.md, section 3

inline std::string sha256(std::string text) {
    static constexpr std::uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
        0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
        0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
        0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
        0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
        0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
        0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
        0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
    };
    std::uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    const std::uint64_t bits = text.size() * 8;
    text += '\x80';
    text.resize((text.size() + 8 + 63) / 64 * 64 - 8);
    for (int shift = 56; shift >= 0; shift -= 8) text += static_cast<char>(bits >> shift);
    const auto turn = [](std::uint32_t x, int by) { return x >> by | x << (32 - by); };
    for (std::size_t at = 0; at < text.size(); at += 64) {
        std::uint32_t w[64], s[8];
        for (int i = 0; i < 16; i++) {
            w[i] = 0;
            for (int j = 0; j < 4; j++) w[i] = w[i] << 8 | static_cast<std::uint8_t>(text[at + 4 * i + j]);
        }
        for (int i = 16; i < 64; i++)
            w[i] = w[i - 16] + (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7] +
                   (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10);
        std::copy(h, h + 8, s);
        for (int i = 0; i < 64; i++) {
            const std::uint32_t a = s[0], e = s[4];
            const std::uint32_t one =
                s[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & s[5]) ^ (~e & s[6])) + k[i] + w[i];
            const std::uint32_t two =
                (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
            std::copy_backward(s, s + 7, s + 8);
            s[4] += one, s[0] = one + two;
        }
        for (int i = 0; i < 8; i++) h[i] += s[i];
    }
    std::string out;
    for (const std::uint32_t word : h)
        for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(word >> shift);
    return out;
}

inline std::string hex(View bytes) {
    std::string out;
    for (const char c : bytes)
        for (const int digit : {static_cast<std::uint8_t>(c) >> 4, c & 15}) out += "0123456789abcdef"[digit];
    return out;
}

inline std::string hmac_sha256(const std::string& key, const std::string& text) {
    std::string inner = key.size() > 64 ? sha256(key) : key;
    inner.resize(64);
    std::string outer = inner;
    for (char& c : inner) c ^= 0x36;
    for (char& c : outer) c ^= 0x5c;
    return sha256(outer + sha256(inner + text));
}

// The engine's proof for a trainer whose line answers the nonce rightly; "" for any other line.
inline std::string proof_for(const std::string& token, const std::string& nonce, View line) {
    if (line.size() != 5 + 64 + 1 + 64 || line.substr(0, 5) != "AUTH=" || line[69] != ',') return {};
    const std::string said = nonce + ":" + std::string(line.substr(5, 64));
    const std::string right = hex(hmac_sha256(token, "trainer:" + said));
    int differs = 0;
    for (std::size_t i = 0; i < 64; i++) differs |= right[i] ^ line[70 + i];
    return differs ? std::string() : "AUTH=" + hex(hmac_sha256(token, "engine:" + said)) + "\n";
}

// One accepted socket. What is written is kept until the other side reads it.
class Connection {
public:
    Connection(Socket socket, const sockaddr_storage& address, socklen_t length) : socket_(socket) {
        int on = 1;
        non_blocking(socket_);
        setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, reinterpret_cast<const char*>(&on), sizeof on);
        // A trainer may compute for as long as it likes: its system answers for it. One whose machine has vanished is
        // found out within 20 s.
        setsockopt(socket_, SOL_SOCKET, SO_KEEPALIVE, reinterpret_cast<const char*>(&on), sizeof on);
        const int idle = 10, every = 5, count = 2;
#if defined(TCP_KEEPIDLE)
        setsockopt(socket_, IPPROTO_TCP, TCP_KEEPIDLE, reinterpret_cast<const char*>(&idle), sizeof idle);
#elif defined(TCP_KEEPALIVE)
        setsockopt(socket_, IPPROTO_TCP, TCP_KEEPALIVE, reinterpret_cast<const char*>(&idle), sizeof idle);
#endif
#if defined(TCP_KEEPINTVL) && defined(TCP_KEEPCNT)
        setsockopt(socket_, IPPROTO_TCP, TCP_KEEPINTVL, reinterpret_cast<const char*>(&every), sizeof every);
        setsockopt(socket_, IPPROTO_TCP, TCP_KEEPCNT, reinterpret_cast<const char*>(&count), sizeof count);
#endif
        (void)idle, (void)every, (void)count;
#ifdef SO_NOSIGPIPE
        setsockopt(socket_, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
        char name[256] = "", port[16] = "";
        if (!getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, name, sizeof name, port, sizeof port,
                         NI_NUMERICHOST | NI_NUMERICSERV))
            host = name, peer = host + ":" + port;
    }
    ~Connection() { close_socket(socket_); }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    std::string host, peer, nonce;
    bool heard = false, told = false, gone = false;
    const double since = seconds();

    Socket socket() const { return socket_; }
    bool clogged() const { return sent_ < out_.size(); }
    View unread() const { return View(in_).substr(head_); }

    // Reads what is there, up to about `most` bytes that wait for a line feed.
    void receive(std::size_t most) {
        char chunk[65536];
        while (!gone && in_.size() - head_ <= most) {
            const auto got = recv(socket_, chunk, sizeof chunk, 0);
            if (got == 0 || (got < 0 && !would_block())) gone = true;
            if (got <= 0) return;
            heard = true;
            in_.append(chunk, static_cast<std::size_t>(got));
            if (static_cast<std::size_t>(got) < sizeof chunk) return;
        }
    }

    // The next line, without its line feed; valid until something is received.
    bool next_line(View& line) {
        const std::size_t at = in_.find('\n', std::max(head_, scanned_));
        scanned_ = in_.size();
        if (at == std::string::npos) {
            if (head_) in_.erase(0, head_), head_ = 0, scanned_ = in_.size();
            return false;
        }
        line = View(in_).substr(head_, at - head_);
        head_ = scanned_ = at + 1;
        return true;
    }

    void discard() { in_.clear(), head_ = scanned_ = 0; }

    void send(View data) {
        out_.append(data);
        flush();
    }
    void flush() {
        while (!gone && clogged()) {
            const auto left = static_cast<SendSize>(std::min(out_.size() - sent_, std::size_t{1} << 30));
            const auto done = ::send(socket_, out_.data() + sent_, left, send_flags);
            if (done < 0 && would_block()) return;
            if (done <= 0) gone = true;
            else sent_ += static_cast<std::size_t>(done);
        }
        out_.clear();
        sent_ = 0;
    }
    void ring_bell() { (void)::send(socket_, "\1", 1, send_flags); }  // a full socket is full of doorbells already

private:
    Socket socket_;
    std::string in_, out_;
    std::size_t head_ = 0, scanned_ = 0, sent_ = 0;
};

// -- shared memory: docs/shared-memory.md

using U32 = std::atomic<std::uint32_t>;
using U64 = std::atomic<std::uint64_t>;
static_assert(sizeof(U32) == 4 && sizeof(U64) == 8 && U32::is_always_lock_free && U64::is_always_lock_free,
              "words of the segment");

struct Header {
    U32 magic;
    std::uint32_t version, server_pid;
    U32 client_pid;
    std::uint8_t mode, unused_17[3];
    std::uint32_t num_envs, obs_size, act_size;
    U64 frame_seq, action_seq;
    std::uint64_t obs_offset, act_offset, rewards_offset, dones_offset, resets_offset, cmd_s2c_offset, cmd_c2s_offset;
    std::uint32_t cmd_ring_size, unused_108;
    std::uint64_t image_offset;
    std::uint32_t image_width, image_height, image_channels;
    std::uint8_t gpu_available, gpu_obs_mode, gpu_obs_handle[64], unused_198[2];
    std::uint32_t gpu_device_id, unused_204, ext_magic, ext_version;
    std::uint64_t total_size;
    std::uint8_t token[16], proof[16];
    std::uint64_t server_start;
    U32 engine_flag, client_flag;
    U64 heartbeat;
    U32 server_state, client_state;
    std::uint64_t answered_seq, ask_offset, answered_offset, seeds_offset, config_offset;
    std::uint32_t config_size, truncateds_at, image_order, image_role;
    std::uint64_t server_namespace, masks_offset, present_offset;
    std::uint32_t mask_size;
    U32 reason_pid;
    U64 client_since;
    char reason[1024];
};
static_assert(offsetof(Header, obs_offset) == 48 && offsetof(Header, ext_magic) == 208 &&
                  offsetof(Header, engine_flag) == 264 && offsetof(Header, mask_size) == 368 &&
                  offsetof(Header, reason) == 384 && sizeof(Header) == 1408,
              "the layout");

// One direction of the command rings. What the other side wrote is checked on every use.
class Ring {
public:
    Ring(unsigned char* at, std::uint32_t size)
        : words_(reinterpret_cast<U32*>(at)), data_(at + 8), capacity_(size - 8) {}

    std::size_t longest() const { return ((capacity_ - 8) / 2 + 7) / 8 * 8 - 4; }

    // 1: written, 0: no room now, -1: the reader's position is invalid.
    int write(View payload) {
        const std::uint32_t read = words_[1].load(std::memory_order_acquire);
        if (read >= capacity_ || read % 8) return -1;
        const auto need = static_cast<std::uint32_t>((4 + payload.size() + 7) / 8 * 8);
        if (write_ >= read) {
            if (need > capacity_ - write_ - (read ? 0 : 8)) {
                if (need + 8 > read) return 0;
                store(write_, 0xFFFFFFFFu);
                write_ = 0;
            }
        } else if (need + 8 > read - write_) {
            return 0;
        }
        store(write_, static_cast<std::uint32_t>(payload.size()));
        std::memcpy(data_ + write_ + 4, payload.data(), payload.size());
        write_ = write_ + need == capacity_ ? 0 : write_ + need;
        words_[0].store(write_, std::memory_order_release);
        return 1;
    }

    // 1: read, 0: empty, -1: the writer's position or a length is invalid.
    int read(std::string& payload) {
        const std::uint32_t write = words_[0].load(std::memory_order_acquire);
        if (write >= capacity_ || write % 8) return -1;
        if (write == read_) return 0;
        std::uint32_t at = read_, size = load(at);
        if (size == 0xFFFFFFFFu) {
            if (write >= at || !write) return -1;
            size = load(at = 0);
        }
        const std::uint32_t room = (write > at ? write : capacity_) - at;
        if (size > room || (size + 11) / 8 * 8 > room) return -1;
        payload.assign(reinterpret_cast<const char*>(data_ + at + 4), size);
        at += (size + 11) / 8 * 8;
        read_ = at == capacity_ ? 0 : at;
        words_[1].store(read_, std::memory_order_release);
        return 1;
    }

    // For the next session: nothing of the old one stands here any more.
    void restart() {
        words_[0] = words_[1] = 0;
        write_ = read_ = 0;
    }

private:
    U32* words_;
    unsigned char* data_;
    std::uint32_t capacity_, write_ = 0, read_ = 0;

    void store(std::uint32_t at, std::uint32_t value) { std::memcpy(data_ + at, &value, 4); }
    std::uint32_t load(std::uint32_t at) const {
        std::uint32_t value;
        std::memcpy(&value, data_ + at, 4);
        return value;
    }
};

inline void random_bytes(std::uint8_t* out, std::size_t count) {
    std::random_device device;
    for (std::size_t i = 0; i < count; i++) out[i] = static_cast<std::uint8_t>(device());
}

// The segment of a session, or of an engine by name.
class Segment {
public:
    Segment() = default;
    ~Segment() { close(); }
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;

    std::string name;
    Header* header = nullptr;
    std::unique_ptr<Ring> s2c, c2s;
    std::uint64_t seen = 0;  // the action_seq that was taken last

    template <class T = std::uint8_t>
    T* at(std::uint64_t offset) const {
        return reinterpret_cast<T*>(base_ + offset);
    }

    Problem make(const Bridge& bridge, const std::string& segment_name, std::uint32_t ring_size) {
        const Layout& layout = bridge.layout;
        const std::uint64_t rows = layout.rows;
        std::uint64_t end = 4096;
        const auto place = [&](std::uint64_t size) {
            const std::uint64_t start = end;
            end = (start + size + 63) / 64 * 64;
            return start;
        };
        const std::uint64_t obs = place(4 * rows * static_cast<std::uint64_t>(bridge.spec.obs_size)),
                            act = place(4 * rows * static_cast<std::uint64_t>(bridge.spec.act_size));
        const std::uint64_t rewards = place(4 * rows), dones = place(rows), truncateds = place(rows),
                            resets = place(rows), ask = place(rows);
        const std::uint64_t answered = place(rows), seeds = place(8 * rows), config = place(layout.config.size()),
                            masks = place(rows * layout.mask_size);
        const std::uint64_t present = place(rows), to_client = place(ring_size), to_server = place(ring_size),
                            image = place(rows * layout.image.bytes());
        size_ = static_cast<std::size_t>((end + 4095) / 4096 * 4096);
        name = segment_name;
        if (Problem problem = map()) return problem;
        Header& h = *(header = reinterpret_cast<Header*>(base_));  // all zeros: a fresh mapping
        h.version = 1;
        h.server_pid = process_id();
        h.num_envs = static_cast<std::uint32_t>(rows);
        h.obs_size = static_cast<std::uint32_t>(bridge.spec.obs_size);
        h.act_size = static_cast<std::uint32_t>(bridge.spec.act_size);
        h.obs_offset = obs, h.act_offset = act, h.rewards_offset = rewards, h.dones_offset = dones,
        h.resets_offset = resets;
        h.truncateds_at = static_cast<std::uint32_t>(truncateds - dones);
        h.ext_magic = 0x58524555, h.ext_version = 1;
        h.total_size = size_;
        random_bytes(h.token, 16), random_bytes(h.proof, 16);
        h.server_start = process_start(h.server_pid), h.server_namespace = process_namespace();
        h.ask_offset = ask, h.answered_offset = answered, h.seeds_offset = seeds;
        h.config_offset = config, h.config_size = static_cast<std::uint32_t>(layout.config.size());
        if (layout.mask_size) h.masks_offset = masks, h.mask_size = static_cast<std::uint32_t>(layout.mask_size);
        if (!bridge.spec.agents.empty()) h.present_offset = present;
        if (ring_size) {
            h.cmd_s2c_offset = to_client, h.cmd_c2s_offset = to_server, h.cmd_ring_size = ring_size;
            s2c = std::make_unique<Ring>(at(to_client), ring_size),
            c2s = std::make_unique<Ring>(at(to_server), ring_size);
        }
        if (layout.image.bytes()) {
            h.image_offset = image;
            h.image_width = layout.image.width, h.image_height = layout.image.height,
            h.image_channels = layout.image.channels;
            h.image_order = layout.image.planes, h.image_role = layout.image.only;
        }
        std::memset(at(seeds), 0xFF, 8 * rows);
        std::memcpy(at(config), layout.config.data(), layout.config.size());
        present_ = at(present);
#ifndef __linux__
        h.engine_flag = 3;  // it cannot wake a futex
#endif
        h.magic.store(0x4C524243u, std::memory_order_release);  // who reads the magic finds all of the header
        h.server_state.store(1, std::memory_order_release);
        return {};
    }

    // `states` lies in the segment from here on, with what stood in it.
    void bind(States& states, const Layout& layout) const {
        const auto move = [&](auto*& array, std::uint64_t offset, std::size_t count) {
            auto* there = at<std::remove_reference_t<decltype(*array)>>(offset);
            if (array && count) std::memcpy(there, array, count * sizeof *array);
            array = there;
        };
        move(states.obs, header->obs_offset, layout.rows * header->obs_size);
        move(states.rewards, header->rewards_offset, layout.rows);
        move(states.dones, header->dones_offset, layout.rows);
        move(states.truncateds, header->dones_offset + header->truncateds_at, layout.rows);
        if (layout.mask_size) move(states.masks, header->masks_offset, layout.rows * layout.mask_size);
        if (layout.image.bytes()) move(states.image, header->image_offset, layout.rows * layout.image.bytes());
        auto* present = present_;
        std::memcpy(present, states.present, layout.rows);
        states.present = present;
    }

    // Takes the request `seq` into the inbox. Read once: the trainer could change it meanwhile.
    Problem take(std::uint64_t seq, const Bridge& bridge, Inbox& inbox) {
        if (seq != seen + 1)
            return seen = seq, Problem{"UnexpectedMessage", "the trainer asked more than once, or counted wrongly"};
        seen = seq;
        const std::size_t per_env = bridge.layout.per_env, width = bridge.layout.act_size;
        std::memcpy(inbox.command.data(), at(header->ask_offset), inbox.command.size());
        std::memcpy(inbox.actions.data(), at(header->act_offset), inbox.actions.size() * sizeof(float));
        const bool finite = all_finite(inbox.actions.data(), inbox.actions.size());
        for (std::size_t env = 0; env < inbox.answered.size(); env++) {
            const std::uint8_t* command = &inbox.command[env * per_env];
            bool asked = false, reset = false, all = true;
            for (std::size_t k = 0; k < per_env; k++) {
                if (command[k] > Inbox::ResetEnv)
                    return {"MalformedMessage", "env " + number_text(env) + ": ask is neither 0, 1 nor 2"};
                asked |= command[k] != Inbox::Nothing;
                reset |= command[k] == Inbox::ResetEnv;
                all &= command[k] == Inbox::ResetEnv;
                if (!finite && command[k] == Inbox::Step &&
                    !all_finite(&inbox.actions[(env * per_env + k) * width], width))
                    return {"NonFiniteValue", "env " + number_text(env) + ": the action is not a finite number"};
            }
            if (reset && !all)
                return {"MalformedMessage",
                        "env " + number_text(env) + ": some of its agents are reset, others are not"};
            if (reset)
                inbox.seeds[env] = std::max<std::int64_t>(at<std::int64_t>(header->seeds_offset)[env * per_env], -1);
            inbox.open += asked;
        }
        return {};
    }

    // The answer is complete.
    void publish(Connection* socket) {
        header->answered_seq = seen;
        header->frame_seq.fetch_add(1);
        wake(socket);
    }
    void publish_part(const Inbox& inbox, std::size_t per_env) {
        header->answered_seq = seen;
        for (std::size_t row = 0; row < inbox.command.size(); row++)
            at(header->answered_offset)[row] = inbox.answered[row / per_env];
    }

    void wake(Connection* socket) {
        std::atomic_thread_fence(std::memory_order_seq_cst);  // between the counter that was written and the flag
        std::uint32_t flag = header->client_flag.load(std::memory_order_acquire);
        if (flag >= 2 && socket) socket->ring_bell();
#ifdef __linux__
        if (flag == 1 && header->client_flag.compare_exchange_strong(flag, 0))
            syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&header->client_flag), FUTEX_WAKE, INT32_MAX, nullptr,
                    nullptr, 0);
#endif
    }

    std::uint64_t asked() const { return header->action_seq.load(std::memory_order_acquire); }

    // Busy-waits for a request; for a shorter time where that fails again and again. Now and then for the full time: to
    // be woken takes longer than the trainer, so who blocks once would find no reason to spin ever again. Not at all for
    // a while after this thread was pushed off its core: who spins where cores are short waits longer for its turn. Each
    // further such while is twice as long (ue_rl/system/_spin.h).
    bool spin() {
        const double begun = seconds(), end = begun + (++waits_ % 32 ? spin_us_ : 300) * 1e-6;
        if (begun - looked_ > 1e-3) look_at_cores(begun);
        if (begun < no_spin_before_) return false;
        double before = begun;
        for (int i = 1; asked() == seen; i++) {
#if defined(__x86_64__) || defined(__i386__)
            __builtin_ia32_pause();
#endif
            if (i % 64) continue;
            const double now = seconds();
            if (now - before > 100e-6) return cores_are_short(now), asked() != seen;
            if (now > end) return spin_us_ = std::max(spin_us_ / 2, 2.0), false;
            before = now;
        }
        spin_us_ = std::min(std::max(spin_us_, (seconds() - begun) * 1e6) * 2, 300.0);
        return true;
    }

    // Counts this thread's switches: was it pushed off its core since the last time? Unknown where it has blocked since.
    void look_at_cores(double now) {
#ifdef __linux__
        rusage used;
        if (getrusage(RUSAGE_THREAD, &used)) return;
        const double cpu = static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                           static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
        if (used.ru_nivcsw != pushed_ && used.ru_nvcsw == blocked_ && now - looked_ - (cpu - cpu_) > 100e-6)
            cores_are_short(now);
        cpu_ = cpu, blocked_ = used.ru_nvcsw, pushed_ = used.ru_nivcsw;
#endif
        looked_ = now;
    }
    void cores_are_short(double now) {
        if (now >= no_spin_before_) pause_ = now < no_spin_before_ + pause_ ? std::min(2 * pause_, 1.6) : 0.05;
        no_spin_before_ = now + pause_;
    }

    // By name, without a socket: blocks for 20 ms at most, or until there is a request.
    void sleep() {
#ifdef __linux__
        header->engine_flag.store(1);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        const timespec slice = {0, 20000000};
        if (asked() == seen)
            syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&header->engine_flag), FUTEX_WAIT, 1, &slice, nullptr,
                    0);
        header->engine_flag.store(0);
#else
        nap(200);
#endif
    }

    // Ends the session of whoever holds it; "": it has gone by itself.
    void tell(const std::string& why) {
        if (why.empty() || !header->client_pid) return;
        header->reason_pid = 0;
        const std::string text = clipped(why, sizeof header->reason - 1);
        std::memcpy(header->reason, text.c_str(), text.size() + 1);
        header->reason_pid.store(header->client_pid, std::memory_order_release);
    }
    void free_slot() {
        seen = asked();
        if (s2c) s2c->restart(), c2s->restart();
        header->client_since = 0;
        header->client_state.store(0, std::memory_order_release);
        header->client_pid.store(0, std::memory_order_release);
    }

    // Nobody else can find it any more; both sides keep what they have mapped.
    void unlink() {
#ifdef _WIN32
        if (linked_) DeleteFileA(name.c_str());
#else
        if (linked_) is_path() ? ::unlink(name.c_str()) : shm_unlink(("/" + name).c_str());
#endif
        linked_ = false;
    }

private:
    unsigned char *base_ = nullptr, *present_ = nullptr;
    std::size_t size_ = 0;
    bool linked_ = false;
    double spin_us_ = 300, no_spin_before_ = 0, pause_ = 0;
    double looked_ = 0, cpu_ = 0;  // seconds: when switches were counted, and this thread's CPU time then
    long blocked_ = 0, pushed_ = 0;
    unsigned waits_ = 0;
#ifdef _WIN32
    HANDLE mapping_ = nullptr;
#endif

    bool is_path() const { return name.find_first_of("/\\") != std::string::npos; }

#ifdef _WIN32
    HANDLE open_file(DWORD how) const {
        return CreateFileA(name.c_str(), GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, nullptr, how,
                           0, nullptr);
    }

    Problem map() {
        HANDLE file = INVALID_HANDLE_VALUE;
        if (is_path()) {
            file = open_file(CREATE_NEW);
            if (file == INVALID_HANDLE_VALUE && is_left_over() && DeleteFileA(name.c_str()))
                file = open_file(CREATE_NEW);
            if (file == INVALID_HANDLE_VALUE)
                return {"ConfigurationError", name + ": the file cannot be made, or there is one"};
            linked_ = true;
        }
        const std::string named = "Local\\" + name;  // of this user's session, for whom a service's would be another
        mapping_ = CreateFileMappingA(file, nullptr, PAGE_READWRITE, static_cast<DWORD>(std::uint64_t{size_} >> 32),
                                      static_cast<DWORD>(size_), is_path() ? nullptr : named.c_str());
        const bool taken = GetLastError() == ERROR_ALREADY_EXISTS;
        if (file != INVALID_HANDLE_VALUE) CloseHandle(file);
        if (mapping_ && !taken)
            base_ = static_cast<unsigned char*>(MapViewOfFile(mapping_, FILE_MAP_ALL_ACCESS, 0, 0, size_));
        return base_ ? Problem{}
                     : Problem{"ConfigurationError", name + ": the shared memory cannot be made, or its name is taken"};
    }
    void close() {
        if (header) header->server_state = 2;
        if (base_) UnmapViewOfFile(base_);
        if (mapping_) CloseHandle(mapping_);
        unlink();  // last: a file that is mapped cannot be deleted
    }

    // Is this file the segment of an engine that has died?
    bool is_left_over() const {
        alignas(Header) unsigned char head[sizeof(Header)];
        DWORD read = 0;
        const HANDLE file = open_file(OPEN_EXISTING);
        if (file == INVALID_HANDLE_VALUE) return false;
        const bool whole = ReadFile(file, head, sizeof head, &read, nullptr) && read == sizeof head;
        CloseHandle(file);
        const Header& h = *reinterpret_cast<const Header*>(head);
        return whole && h.magic.load() == 0x4C524243u && h.ext_magic == 0x58524555 &&
               !process_alive(h.server_pid, h.server_start);
    }
#else
    int open_file(int flags) const {
        return is_path() ? ::open(name.c_str(), flags | O_CLOEXEC, 0600) : shm_open(("/" + name).c_str(), flags, 0600);
    }

    Problem map() {
        int file = open_file(O_RDWR | O_CREAT | O_EXCL);
        if (file < 0 && errno == EEXIST && is_left_over())
            linked_ = true, unlink(), file = open_file(O_RDWR | O_CREAT | O_EXCL);
        if (file < 0)
            return {"ConfigurationError", name + ": the shared memory cannot be made: " + std::strerror(errno)};
        linked_ = true;
#ifdef __linux__
        const int failed =
            posix_fallocate(file, 0, static_cast<off_t>(size_));  // on a full /dev/shm a write would be a SIGBUS
#else
        const int failed = ftruncate(file, static_cast<off_t>(size_)) ? errno : 0;
#endif
        void* mapped = failed ? MAP_FAILED : mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        ::close(file);
        if (mapped == MAP_FAILED)
            return unlink(), Problem{"ConfigurationError",
                                     name + ": no room for " + number_text(size_) + " bytes of shared memory"};
        base_ = static_cast<unsigned char*>(mapped);
        return {};
    }

    // Is what has this name the segment of an engine of ours that has died?
    bool is_left_over() const {
        const int file = open_file(O_RDONLY);
        struct stat info;
        bool dead = false;
        if (file >= 0 && !fstat(file, &info) && info.st_uid == getuid() && info.st_size >= 4096) {
            void* mapped = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file, 0);
            if (mapped != MAP_FAILED) {
                const Header& h = *static_cast<const Header*>(mapped);
                dead = h.magic.load() == 0x4C524243u && h.ext_magic == 0x58524555 &&
                       h.server_namespace == process_namespace() && !process_alive(h.server_pid, h.server_start);
                munmap(mapped, 4096);
            }
        }
        if (file >= 0) ::close(file);
        return dead;
    }
    void close() {
        unlink();
        if (header) header->server_state.store(2, std::memory_order_release), wake(nullptr);
        if (base_) munmap(base_, size_);
    }
#endif
};

// A flat JSON object of numbers, {"gravity": 3.7}: as the text of SET. False: something else.
inline bool settings_of_json(View text, std::string& out) {
    std::size_t i = 0;
    const auto skip = [&] {
        while (i < text.size() && (blank(text[i]) || text[i] == '\n')) i++;
    };
    const auto take = [&](char c) {
        skip();
        return i < text.size() && text[i] == c && ++i;
    };
    const auto hex4 = [&](unsigned& code) {
        code = 0;
        for (int k = 0; k < 4; k++, i++) {
            if (i >= text.size() || hex_value(text[i]) < 0) return false;
            code = code * 16 + static_cast<unsigned>(hex_value(text[i]));
        }
        return true;
    };
    if (!take('{')) return false;
    do {
        std::string name;
        if (!take('"')) return false;
        while (i < text.size() && text[i] != '"') {
            if (text[i] != '\\') {
                name += text[i++];
                continue;
            }
            if (++i >= text.size()) return false;
            const char c = text[i++];
            unsigned code = 0, low = 0;
            if (c != 'u') {
                const char* escape = std::strchr("b\bf\fn\nr\rt\t//\"\"\\\\", c);
                if (!c || !escape) return false;
                name += escape[1];
                continue;
            }
            if (!hex4(code)) return false;
            if (code >= 0xD800 && code < 0xDC00 && text.substr(i, 2) == "\\u") {
                i += 2;
                if (!hex4(low)) return false;
                code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
            }
            const auto byte = [&](unsigned bits) { name += static_cast<char>(bits); };
            if (code < 0x80) byte(code);
            else if (code < 0x800) byte(0xC0 | code >> 6), byte(0x80 | (code & 63));
            else if (code < 0x10000) byte(0xE0 | code >> 12), byte(0x80 | (code >> 6 & 63)), byte(0x80 | (code & 63));
            else
                byte(0xF0 | code >> 18), byte(0x80 | (code >> 12 & 63)), byte(0x80 | (code >> 6 & 63)),
                    byte(0x80 | (code & 63));
        }
        if (!take('"') || !take(':')) return false;
        skip();
        const char *at = text.data() + i, *start = at;
        double number = 0;
        if (read_number(at, text.data() + text.size(), number) != Read::Ok) return false;
        i += static_cast<std::size_t>(at - start);
        out += (out.empty() ? "" : ",") + name_text(name) + ":" + number_text(number);
    } while (take(','));
    return take('}') && (skip(), i == text.size());
}

}  // namespace detail

// -- the server

// Serves one trainer after the other.
class Server::Impl {
public:
    Impl(Bridge& bridge, Options options) : bridge_(bridge), options_(std::move(options)) {
        const Layout& layout = bridge.layout;
        inbox_.clear(layout);
        floats_.resize(layout.rows * (layout.obs_size + 1));
        bytes_.resize(layout.rows * (3 + layout.mask_size + layout.image.bytes()));
        use_own_arrays();
    }
    ~Impl() {
        playing_ = false;
        for (const auto& c : session_) detail::close_hard(c->socket());
        end("the engine was stopped");
        if (listener_ != detail::no_socket) detail::close_socket(listener_);
    }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    // Listens; false: error() says why not. Where the port was taken it may be tried again.
    bool start() {
        if (!bridge_.layout.problem.empty()) return fail(bridge_.layout.problem);
        if (demo() && !options_.heuristic) return fail("Feature::Demo needs Options::heuristic");
        if (demo() && !bridge_.spec.features.count(Feature::Info)) return fail("Feature::Demo needs Feature::Info");
        if (options_.heuristic && !demo()) return true;
        if (options_.ring_size < 4096 || options_.ring_size % 8)
            return fail("ring_size: a multiple of 8, 4096 or more, was expected");
        if (!options_.token.empty() && options_.token.size() < 16) return fail("token: 16 bytes or more were expected");
        if (options_.shm_name.empty()) return listen();
        named_ = make_segment(options_.shm_name, error_);
        if (named_) named_->bind(states_, bridge_.layout);
        return named_ != nullptr;
    }
    const std::string& error() const { return error_; }
    int port() const { return port_; }
    bool serving() const { return named_ ? holder_ != 0 : !session_.empty(); }

    // For a game with a loop of its own: takes what is asked, lets the game follow it, answers. It never blocks, unless
    // `wait_ms` says how long it may wait for something to do. True: a request was answered completely.
    bool tick(int wait_ms = 0) { return turn(wait_ms); }

    // Serves until stop(), blocking: a request is answered as soon as it is there.
    void run() {
        while (!stopped_) turn(20);
    }
    void stop() { stopped_ = true; }  // from any thread, or a signal handler

private:
    using Connection = detail::Connection;
    using View = detail::View;
    enum class Wiring { Unknown, Shared, PerEnv, Memory };

    Bridge& bridge_;
    Options options_;
    Inbox inbox_;
    States states_;
    std::vector<float> floats_;
    std::vector<std::uint8_t> bytes_;
    std::string error_;
    std::atomic<bool> stopped_{false};
    // TCP
    detail::Socket listener_ = detail::no_socket;
    double accepts_again_ = 0;  // seconds; until then nobody is accepted
    int port_ = 0;
    std::vector<std::unique_ptr<Connection>> session_, waiting_;  // session_[0]: the first, [i + 1]: env i's own
    std::vector<std::unique_ptr<Connection>> outside_;            // they have not proved yet that they know the token
    Wiring wiring_ = Wiring::Unknown;
    bool means_shared_ = false, complete_ = false, paused_ = false, given_up_ = false;
    double since_ = 0, env_since_ = 0, next_look_ = 0;
    std::string line_;
    // shared memory
    std::unique_ptr<detail::Segment> offered_, named_;  // a session's, and the one by name
    std::uint32_t holder_ = 0;                          // by name: the trainer's pid
    std::uint64_t holder_start_ = 0;
    bool asked_ = false;  // a request of the segment is open
    std::string text_;    // of a call that comes in pieces
    std::uint32_t text_rest_ = 0;
    // heuristic mode
    bool playing_ = false;
    std::vector<AgentView> views_;    // of each row
    std::vector<float> taken_;         // Feature::Demo: [rows, act_size], where a row has decided_
    std::vector<std::uint8_t> decided_;
    std::vector<std::uint8_t> live_;  // rows whose agent is there and whose episode goes on

    bool fail(const std::string& why) { return error_ = why, false; }
    void log(const std::string& line) const {
        if (options_.log) options_.log(line);
        else std::fprintf(stderr, "ue_rl: %s\n", line.c_str());
    }

    bool listen() {
        detail::start_sockets();
        addrinfo hints{}, *found = nullptr;
        hints.ai_socktype = SOCK_STREAM;
        hints.ai_flags = AI_PASSIVE;
        if (options_.port < 0 || options_.port > 65535) return fail("a port is 0 to 65535");
        if (getaddrinfo(options_.host.c_str(), detail::number_text(options_.port).c_str(), &hints, &found))
            return fail(options_.host + ": no such address");
        // Of a name such as localhost the IPv4 address, which trainers dial.
        const addrinfo* chosen = found;
        while (chosen && chosen->ai_family != AF_INET) chosen = chosen->ai_next;
        if (!chosen) chosen = found;
        int on = 1;
        listener_ = ::socket(chosen->ai_family, SOCK_STREAM, 0);
#ifndef _WIN32
        setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
#else
        setsockopt(listener_, SOL_SOCKET, SO_EXCLUSIVEADDRUSE, reinterpret_cast<const char*>(&on), sizeof on);
#endif
        const bool bound = listener_ != detail::no_socket &&
                           !::bind(listener_, chosen->ai_addr, static_cast<socklen_t>(chosen->ai_addrlen)) &&
                           !::listen(listener_, 128);
        freeaddrinfo(found);
        if (!bound) {  // start() may be tried again
            if (listener_ != detail::no_socket) detail::close_socket(std::exchange(listener_, detail::no_socket));
            return fail(options_.host + ", port " + detail::number_text(options_.port) + ": it cannot be listened on");
        }
        detail::non_blocking(listener_);
        sockaddr_storage address{};
        socklen_t length = sizeof address;
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
        port_ = ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                                    : reinterpret_cast<sockaddr_in&>(address).sin_port);
        return true;
    }

    std::unique_ptr<detail::Segment> make_segment(const std::string& name, std::string& why) {
        auto segment = std::make_unique<detail::Segment>();
        const Problem problem = segment->make(bridge_, name, bridge_.layout.rings ? options_.ring_size : 0);
        if (!problem) return segment;
        why = problem.text;
        return nullptr;
    }

    void use_own_arrays() {
        const Layout& layout = bridge_.layout;
        const std::size_t obs = layout.rows * layout.obs_size;
        std::uint8_t* at = bytes_.data();
        const auto place = [&](auto*& array, auto* mine, std::size_t count) {
            if (array && count) std::memcpy(mine, array, count * sizeof *array);
            array = count ? mine : nullptr;
            return mine + count;
        };
        place(states_.obs, floats_.data(), obs);
        place(states_.rewards, floats_.data() + obs, layout.rows);
        at = place(states_.dones, at, layout.rows);
        at = place(states_.truncateds, at, layout.rows);
        at = place(states_.present, at, layout.rows);
        at = place(states_.masks, at, layout.rows * layout.mask_size);
        place(states_.image, at, layout.rows * layout.image.bytes());
    }

    // -- one turn

    bool turn(int wait_ms) {
        if (options_.heuristic && !demo()) return error_.empty() && play();
        detail::Segment* segment = memory();
        if (!segment) {
            pump(inbox_.open ? 0 : wait_ms);
            manage();
            return wiring_ != Wiring::Memory && inbox_.open && advance();
        }
        if (asked_) return look(*segment), asked_ && advance();
        if (segment->asked() == segment->seen && !(wait_ms && segment->spin())) {
            if (wait_ms) wait(*segment, wait_ms), segment->look_at_cores(detail::seconds());
            look(*segment);
        } else if (detail::seconds() >= next_look_) {
            look(*segment);  // also where requests come without a pause
        }
        segment = memory();
        return segment && segment->asked() != segment->seen && take(*segment) && advance();
    }

    bool demo() const { return bridge_.spec.features.count(Feature::Demo) != 0; }

    // The heuristic's actions instead of the trainer's, once for each step.
    Problem take_over() {
        const Layout& layout = bridge_.layout;
        views_.resize(layout.rows);
        live_.resize(layout.rows);
        taken_.resize(layout.rows * layout.act_size);
        decided_.resize(layout.rows);
        for (std::size_t row = 0; row < layout.rows; row++) {
            if (inbox_.command[row] != Inbox::Step || inbox_.answered[row / layout.per_env]) continue;
            float* action = &taken_[row * layout.act_size];
            views_[row].observation = states_.obs + row * layout.obs_size;
            if (!decided_[row]) options_.heuristic(views_[row], action);
            decided_[row] = 1;
            if (!detail::all_finite(action, layout.agents[row % layout.per_env].act_size))
                return {"NonFiniteValue", "the heuristic's action is not a finite number"};
            std::copy(action, action + layout.act_size, &inbox_.actions[row * layout.act_size]);
        }
        return detail::check_choices(bridge_, inbox_);
    }

    // INFO of what was answered: the action that was taken.
    void tell_taken() {
        const Layout& layout = bridge_.layout;
        for (std::size_t row = 0; row < layout.rows; row++) {
            if (!inbox_.answered[row / layout.per_env] || !states_.present[row]) continue;
            see(row, static_cast<bool>(options_.show));
            if (!std::exchange(decided_[row], std::uint8_t{0})) continue;
            std::string text;
            for (std::size_t i = 0; i < layout.agents[row % layout.per_env].act_size; i++)
                text += (i ? "," : "") + detail::number_text(taken_[row * layout.act_size + i]);
            std::string& info = states_.infos[static_cast<int>(row)];
            const std::size_t begin = info.find('{') + 1;
            const bool more = begin && info.find_first_not_of(" }", begin) != std::string::npos;
            info = "{\"demo_action\":[" + text + "]" + (more ? "," + info.substr(begin) : "}");
        }
    }

    // In the trainer's place: what is done now, and what has come of it.
    bool play() {
        if (!playing_) {
            playing_ = true;
            views_.resize(bridge_.layout.rows);
            live_.assign(bridge_.layout.rows, 0);
        }
        Problem problem;
        if (!inbox_.open) problem = detail::guarded(bridge_, [&] { return decide(); });
        if (problem) return end(problem.text), false;
        if (!advance()) return false;
        if ((problem = detail::guarded(bridge_, [&] { return show_all(), Problem{}; })))
            return end(problem.text), false;
        return forget_request(), true;
    }

    Problem decide() {
        const Layout& layout = bridge_.layout;
        for (std::size_t row = 0; row < layout.rows; row++) {
            const std::size_t first = row / layout.per_env * layout.per_env;
            const auto* begin = &live_[first];
            if (std::find(begin, begin + layout.per_env, 1) == begin + layout.per_env) {
                inbox_.command[row] = Inbox::ResetEnv;
            } else if (live_[row]) {
                float* action = &inbox_.actions[row * layout.act_size];
                options_.heuristic(views_[row], action);
                if (!detail::all_finite(action, layout.agents[row - first].act_size))
                    return {"NonFiniteValue", "the heuristic's action is not a finite number"};
                inbox_.command[row] = Inbox::Step;
            }
        }
        inbox_.open = layout.envs;
        return {};
    }

    void show_all() {
        const Layout& layout = bridge_.layout;
        for (std::size_t row = 0; row < layout.rows; row++) {
            if (!states_.present[row]) continue;
            see(row, true);
        }
        states_.infos.clear();
    }

    void see(std::size_t row, bool shown) {
        const Layout& layout = bridge_.layout;
        const bool stepped = inbox_.command[row] == Inbox::Step;
        AgentView& view = views_[row];
        view.row = static_cast<int>(row);
        view.observation = states_.obs + row * layout.obs_size;
        view.mask = layout.agents[row % layout.per_env].mask_size ? states_.masks + row * layout.mask_size : nullptr;
        view.steps = stepped ? view.steps + 1 : 0;
        view.reward = stepped ? states_.rewards[row] : 0;
        view.episode_return = stepped ? view.episode_return + static_cast<double>(view.reward) : 0;
        view.done = stepped && states_.dones[row];
        view.truncated = stepped && states_.truncateds[row];
        live_[row] = !view.done;
        if (!shown) return;
        if (options_.show) options_.show(view);
        else log(text_of(bridge_, view));
    }

    void wait(detail::Segment& segment, int wait_ms) {
        if (named_) return segment.sleep();
#ifndef __linux__
        if (segment.header->engine_flag == 3) segment.header->engine_flag = 0;  // there is a socket
#endif
        segment.header->engine_flag.store(2);
        std::atomic_thread_fence(std::memory_order_seq_cst);  // between the flag that was written and the counter
        if (segment.asked() == segment.seen) pump(wait_ms);
        if (!session_.empty()) segment.header->engine_flag.store(0);
    }

    // Between requests: calls, a sign of life, and whether the trainer is still there.
    void look(detail::Segment& segment) {
        segment.header->heartbeat.fetch_add(1, std::memory_order_relaxed);
        if (segment.c2s && serving())
            if (const Problem problem = hear_ring(segment)) return end(problem.text);
        const double now = detail::seconds();
        if (now < next_look_) return;
        next_look_ = now + 0.02;
        if (!named_) return pump(0), manage();
        const std::uint32_t pid = segment.header->client_pid.load(std::memory_order_acquire),
                            state = segment.header->client_state.load(std::memory_order_acquire);
        if (pid && (state == 2 || !detail::process_alive(pid, pid == holder_ ? holder_start_ : 0))) return end("");
        if (pid && state == 1 && !holder_) greet(pid);
    }

    void greet(std::uint32_t pid) {
        holder_ = pid;
        holder_start_ = detail::process_start(pid);
        const Problem problem = detail::guarded(bridge_, [&] { return bridge_.SessionBegan(), Problem{}; });
        if (problem) end(problem.text);
    }

    bool take(detail::Segment& segment) {
        const std::uint64_t seq = segment.asked();
        const std::uint32_t pid = segment.header->client_pid.load(std::memory_order_acquire);
        if (!pid) return segment.seen = seq, false;  // of a trainer whose session was ended
        if (named_ && pid != holder_) greet(pid);
        asked_ = true;
        Problem problem = segment.c2s ? hear_ring(segment) : Problem{};
        if (!problem) problem = segment.take(seq, bridge_, inbox_);
        if (problem) return end(problem.text), false;
        return inbox_.open || (segment.publish(socket()), asked_ = false, true);
    }

    // That requests come through; nullptr: they come as text.
    detail::Segment* memory() const {
        return named_ ? named_.get() : wiring_ == Wiring::Memory ? offered_.get() : nullptr;
    }
    Connection* socket() const { return session_.empty() ? nullptr : session_[0].get(); }

    // The game follows what is asked, as far as this tick comes; what is answered is sent.
    bool advance() {
        const std::size_t per_env = bridge_.layout.per_env;
        const Problem problem = detail::guarded(bridge_, [&]() -> Problem {
            if (Problem wrong = detail::check_choices(bridge_, inbox_)) return wrong;
            for (const auto& [env, settings] : inbox_.settings)
                for (const auto& [parameter, value] : settings) bridge_.SetParameter(parameter, value, env);
            inbox_.settings.clear();
            prepare();
            if (demo())
                if (Problem wrong = take_over()) return wrong;
            bridge_.Update(inbox_, states_);
            if (Problem wrong = detail::check_states(bridge_, inbox_, states_)) return wrong;
            if (demo()) tell_taken();
            return Problem{};
        });
        if (problem) return end(problem.text), false;
        const auto done = static_cast<std::size_t>(std::count(inbox_.answered.begin(), inbox_.answered.end(), 1));
        if (asked_) {
            detail::Segment& segment = *memory();
            if (done < inbox_.open) return segment.publish_part(inbox_, per_env), false;
            for (const auto& [row, info] : states_.infos)
                if (segment.s2c && !write_ring(segment, entry("JSON", 35, static_cast<std::uint32_t>(row), info)))
                    return end("the trainer does not read the command ring, or an info is longer than it takes"), false;
            states_.infos.clear();
            forget_request();
            return segment.publish(socket()), true;
        }
        if (!done || playing_) return done && done == inbox_.open;
        if (!answer_text()) return false;
        if (done < inbox_.open) {
            for (std::size_t env = 0; env < inbox_.answered.size(); env++)
                if (inbox_.answered[env]) forget_env(env);
            inbox_.open -= done;
            return false;
        }
        return forget_request(), true;
    }

    // Of the envs that are asked: agents that have just come say so, and every choice is legal unless the game says no.
    void prepare() {
        const std::size_t per_env = bridge_.layout.per_env;
        for (std::size_t row = 0; row < inbox_.command.size(); row++) {
            const std::size_t first = row / per_env * per_env;
            if (inbox_.answered[row / per_env]) continue;  // in an earlier tick
            if (row == first &&
                std::any_of(&inbox_.command[first], &inbox_.command[first] + per_env, [](auto c) { return c != 0; })) {
                std::fill_n(states_.present + first, per_env, std::uint8_t{0});
                if (states_.masks)
                    std::memset(states_.masks + first * bridge_.layout.mask_size, 1,
                                per_env * bridge_.layout.mask_size);
            }
        }
    }

    void forget_env(std::size_t env) {
        std::fill_n(&inbox_.command[env * bridge_.layout.per_env], bridge_.layout.per_env, Inbox::Nothing);
        inbox_.answered[env] = 0;
        inbox_.seeds[env] = -1;
        inbox_.options.erase(static_cast<int>(env));
    }

    void forget_request() {
        std::fill(inbox_.command.begin(), inbox_.command.end(), Inbox::Nothing);
        std::fill(inbox_.answered.begin(), inbox_.answered.end(), std::uint8_t{0});
        std::fill(inbox_.seeds.begin(), inbox_.seeds.end(), -1);
        inbox_.options.clear();
        inbox_.open = 0;
        asked_ = false;
    }

    // A line for each env socket, else for each request: rows of two do not share one.
    bool answer_text() {
        const std::size_t per_env = bridge_.layout.per_env;
        const bool with_env = bridge_.spec.env_type == EnvType::Multi, alone = wiring_ == Wiring::PerEnv;
        std::size_t place = 0;
        std::uint64_t seq = 0;
        const auto send = [&] {
            detail::append_seq(line_, seq);
            if (line_.size() + 1 > bridge_.layout.max_line) return false;
            if (!line_.empty()) session_[place]->send(line_ += '\n');
            return line_.clear(), true;
        };
        line_.clear();
        bool fits = true;
        for (std::size_t row = 0; row < bridge_.layout.rows; row++) {
            const std::size_t env = row / per_env;
            if (!inbox_.answered[env] || !states_.present[row]) continue;
            if (!line_.empty() && (alone || inbox_.seqs[env] != seq)) fits = fits && send();
            if (!line_.empty()) line_ += "||";
            detail::append_state(line_, bridge_, states_, row, with_env);
            place = alone ? row + 1 : 0;
            seq = inbox_.seqs[env];
        }
        states_.infos.clear();
        if (fits && (line_.empty() || send())) return true;
        return end("the answer is longer than a line may be: is an info too long?"), false;
    }

    // -- the command rings: docs/commands.md, section 1

    static std::string entry(const char* mark, std::uint32_t one, std::uint32_t two, View text) {
        std::string out(12, '\0');
        std::memcpy(&out[0], mark, 4);
        std::memcpy(&out[4], &one, 4);
        std::memcpy(&out[8], &two, 4);
        return out.append(text);
    }

    bool write_ring(detail::Segment& segment, const std::string& data) {
        if (data.size() > segment.s2c->longest()) return false;
        for (const double end = detail::seconds() + 1;;) {
            const int written = segment.s2c->write(data);
            if (written) return segment.wake(socket()), written > 0;
            segment.wake(socket());
            if (detail::seconds() > end) return false;
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    }

    Problem hear_ring(detail::Segment& segment) {
        std::string data;
        for (std::size_t taken = 0; taken < options_.ring_size; taken += data.size() + 4) {  // one ringful at most
            const int read = segment.c2s->read(data);
            if (read < 0) return {"SegmentInvalid", "the trainer's command ring is broken"};
            if (!read) return {};
            if (data.size() < 12) continue;
            std::uint32_t one = 0, two = 0;
            std::memcpy(&one, &data[4], 4);
            std::memcpy(&two, &data[8], 4);
            const View text = View(data).substr(12), mark = View(data).substr(0, 4);
            if (mark == "JSON") {
                if (const Problem problem = hear_json(one, two, text)) return problem;
            } else if (mark == "TEXT") {
                if (const Problem problem = hear_text(segment, one, two, text)) return problem;
            }  // else a FlatBuffer: this engine takes no commands
        }
        return {};
    }

    Problem hear_json(std::uint32_t method, std::uint32_t row, View text) {
        const int env = static_cast<int>(row / bridge_.layout.per_env);
        if (row >= bridge_.layout.rows) return {"UnknownEnv", "a message for an env that does not exist"};
        const View object = detail::trim(text);
        if (object.size() < 2 || object.front() != '{' || object.back() != '}' || !detail::is_utf8(text))
            return {"MalformedMessage", "not a JSON object"};
        if (method == 34) return inbox_.options[env] = std::string(text), Problem{};
        std::string settings;
        if (method != 36 || !detail::settings_of_json(text, settings))
            return {"MalformedMessage", "SET: a JSON object of numbers was expected"};
        return inbox_.settings[env].clear(), detail::read_settings(settings, bridge_.spec, inbox_.settings[env]);
    }

    Problem hear_text(detail::Segment& segment, std::uint32_t number, std::uint32_t rest, View piece) {
        if (asked_) return {"UnexpectedMessage", "a call came while a request was open"};
        if ((text_rest_ && (piece.empty() || text_rest_ - piece.size() != rest)) ||
            text_.size() + piece.size() + rest > detail::call_limit)
            return {"MalformedMessage", "a piece of a call is not the next one, or the call is too long"};
        text_.append(piece);
        text_rest_ = rest;
        if (rest) return {};
        const std::string answer = answer_call(text_), call = std::exchange(text_, std::string());
        const std::size_t step = segment.s2c->longest() - 12;
        for (std::size_t at = 0; at < answer.size(); at += step) {
            const std::size_t left = answer.size() - std::min(at + step, answer.size());
            if (!write_ring(segment,
                            entry("TEXT", number, static_cast<std::uint32_t>(left), View(answer).substr(at, step))))
                return {"RingFull", "the trainer does not read the command ring"};
        }
        return {};
    }

    std::string answer_call(View line) {
        std::string answer;
        std::uint64_t seq = 0;
        Problem refused = detail::cut_seq(line, seq);
        const Problem failed = detail::guarded(bridge_, [&] {
            if (refused) return Problem{};
            answer = detail::call_name(line).empty() ? std::string() : detail::answer_call(bridge_, line, refused);
            return answer.empty() && !refused ? Problem{"MalformedMessage", "not a call"} : Problem{};
        });
        if (failed || refused)
            answer = "REFUSED=" + detail::quoted(detail::clipped(failed ? failed.text : refused.text, 330));
        else if (detail::call_name(line) == "PAUSE") paused_ = true;
        detail::append_seq(answer, seq);
        return answer;
    }

    // -- connections

    // Moves bytes: accepts, reads, sends; waits for `wait_ms` where nothing is there.
    void pump(int wait_ms) {
        std::vector<detail::PollItem> items;
        const auto add = [&](detail::Socket socket, bool writes) {
            detail::PollItem item{};
            item.fd = socket;
            item.events = writes ? POLLOUT : POLLIN;
            items.push_back(item);
        };
        add(listener_, false);
        if (detail::seconds() < accepts_again_) items[0].events = 0;
        for (const auto& c : session_) add(c->socket(), c->clogged());
        for (const auto& c : waiting_) add(c->socket(), c->clogged());
        for (const auto& c : outside_) add(c->socket(), c->clogged());
        if (detail::poll_sockets(items, wait_ms) <= 0) return;
        std::size_t i = 1;
        const auto serve = [&](Connection& c, std::size_t most) {
            const auto events = items[i++].revents;
            if (events && c.clogged()) c.flush();
            else if (events) c.receive(most);  // what does not read its answers is not read either
        };
        for (const auto& c : session_) serve(*c, std::max(bridge_.layout.max_line, detail::call_limit));
        for (const auto& c : waiting_) serve(*c, detail::call_limit);
        for (const auto& c : outside_) serve(*c, 160);
        if (wiring_ == Wiring::Memory && !session_.empty()) session_[0]->discard();  // doorbells
        for (int more = 256; items[0].revents && more; more--) {
            sockaddr_storage address{};
            socklen_t length = sizeof address;
            const detail::Socket socket = ::accept(listener_, reinterpret_cast<sockaddr*>(&address), &length);
            if (socket == detail::no_socket) {
                // Without a free descriptor the connection stays where it is, and the listener is ready at once again.
                if (!detail::would_block()) accepts_again_ = detail::seconds() + 0.1;
                break;
            }
            auto& crowd = options_.token.empty() ? waiting_ : outside_;
            crowd.push_back(std::make_unique<Connection>(socket, address, length));
            if (options_.token.empty()) continue;
            std::uint8_t random[32];
            detail::random_bytes(random, sizeof random);
            crowd.back()->nonce = detail::hex(View(reinterpret_cast<const char*>(random), sizeof random));
            crowd.back()->send("AUTH=" + crowd.back()->nonce + "\n");
        }
    }

    // Who has proved that it knows the token waits for its turn like any other.
    void let_in() {
        for (std::size_t i = 0; i < outside_.size();) {
            Connection& c = *outside_[i];
            View line;
            std::string proof, why;
            if (c.next_line(line)) {
                proof = detail::proof_for(options_.token, c.nonce, detail::trim(line));
                if (proof.empty()) why = "its token is wrong, or it has given none";
            } else if (c.unread().size() > 160 || detail::seconds() - c.since > 5 || i >= 64) {
                why = "it did not prove that it knows the token";
            }
            if (!proof.empty()) c.send(proof), c.heard = !c.unread().empty(), waiting_.push_back(std::move(outside_[i]));
            if (!why.empty()) c.send(detail::error_line(why)), log("a connection from " + c.peer + " was refused: " + why);
            if (!proof.empty() || !why.empty() || c.gone) outside_.erase(outside_.begin() + static_cast<long>(i));
            else i++;
        }
    }

    // Sessions begin and end, and requests are read.
    void manage() {
        for (const auto& c : session_)
            if (c->gone) return end("");
        let_in();
        drop_strangers();
        if (session_.empty() && !waiting_.empty()) begin();
        if (session_.empty()) return;
        if (wiring_ == Wiring::Memory) return tell_busy();
        if (wiring_ == Wiring::Unknown) choose_wiring();
        if (!session_.empty() && wiring_ != Wiring::Unknown && wiring_ != Wiring::Memory) hear();
        if (!session_.empty()) tell_busy();
        if (session_.empty() || wiring_ != Wiring::Unknown || session_[0]->heard || waiting_.empty()) return;
        const auto mine = [&](const auto& c) { return !c->told && c->host == session_[0]->host; };
        const bool may_start = !given_up_ && env_sockets() && std::any_of(waiting_.begin(), waiting_.end(), mine);
        const double most = may_start ? detail::starting : detail::silence;
        if (detail::seconds() - since_ > most)
            end("it has said nothing for " + detail::number_text(most) + " s, and others wait");
    }

    // Only a request can come before a handshake.
    void drop_strangers() {
        const auto strange = [&](const std::unique_ptr<Connection>& c) {
            const View text = detail::trim(c->unread());
            const std::size_t begin = std::min(text.find_first_not_of("\n\r \t"), text.size());
            const View word = text.substr(begin, 3);
            const bool request =
                bridge_.spec.env_type == EnvType::RlBase || detail::same(word, View("ACT").substr(0, word.size()));
            // It had waited for a handshake: it was no env socket.
            if (c->gone && !c->heard && detail::seconds() - c->since > 0.8 * detail::silence) given_up_ = true;
            return c->gone || !request || c->unread().size() > detail::call_limit;
        };
        waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), strange), waiting_.end());
        const std::size_t most = env_sockets() + 16;
        while (waiting_.size() > most) {
            if (bridge_.spec.version && !waiting_.back()->told)
                waiting_.back()->send(detail::error_line("too many trainers wait already"));
            waiting_.pop_back();
        }
    }

    std::size_t env_sockets() const {
        const bool one = bridge_.spec.env_type == EnvType::RlBase || !bridge_.spec.agents.empty() ||
                         bridge_.spec.channel == Channel::Shared;
        return one ? 0 : bridge_.layout.envs;
    }

    void begin() {
        session_.push_back(std::move(waiting_.front()));
        waiting_.erase(waiting_.begin());
        wiring_ = Wiring::Unknown;
        means_shared_ = complete_ = paused_ = given_up_ = false;
        since_ = env_since_ = detail::seconds();
        std::string line = bridge_.layout.config;
        if (options_.shared_memory && bridge_.spec.version && bridge_.spec.env_type != EnvType::RlBase) {
            std::uint8_t random[4];
            char name[32], token[3];
            std::string why;
            detail::random_bytes(random, 4);
            std::snprintf(name, sizeof name, "ue_rl_%u_%02x%02x%02x%02x", detail::process_id(), random[0], random[1],
                          random[2], random[3]);
            offered_ = make_segment(name, why);
            if (!offered_) log("no shared memory to offer: " + why);
            if (offered_) line += ";SHM=" + std::string(name) + ":";
            for (int i = 0; offered_ && i < 16; i++)
                std::snprintf(token, sizeof token, "%02x", offered_->header->token[i]), line += token;
        }
        session_[0]->send(line + "\n");
        const Problem problem = detail::guarded(bridge_, [&] { return bridge_.SessionBegan(), Problem{}; });
        if (problem) return end(problem.text);
        if (bridge_.spec.env_type != EnvType::RlBase) return;
        wiring_ = Wiring::Shared;  // the plugin sends a state that nobody asked for, which the trainer drops
        inbox_.command[0] = Inbox::ResetEnv;
        inbox_.open = 1;
    }

    void choose_wiring() {
        Connection& first = *session_[0];
        if (!first.unread().empty() && first.unread().find_first_not_of("\r\n") != 0 &&
            bridge_.spec.channel != Channel::PerEnv)
            means_shared_ = true;
        View line;
        std::size_t mine = 0;
        for (const auto& c : waiting_) mine += c->heard && !c->told && c->host == first.host;
        if (env_sockets() && !means_shared_ && mine) {
            std::size_t there = 0;
            for (const auto& c : waiting_) there += !c->told && c->host == first.host;
            const bool patient = detail::seconds() - env_since_ < 1;
            if (mine >= env_sockets() || (!patient && there == env_sockets()))
                return take_env_sockets(mine >= env_sockets());
        } else {
            env_since_ = detail::seconds();
        }
        while (wiring_ == Wiring::Unknown && !first.clogged() &&
               next_line(first, line, std::max(bridge_.layout.max_line, detail::call_limit))) {
            if (detail::trim(line).empty()) continue;
            if (bridge_.layout.calls && !detail::call_name(line).empty()) {
                first.send(answer_call(line) + "\n");
            } else if (offered_ && detail::same(detail::trim(line).substr(0, 4), "SHM=")) {
                accept_memory(line);
            } else {
                offered_.reset();
                if (!env_sockets() || bridge_.spec.channel != Channel::PerEnv) {
                    wiring_ = Wiring::Shared;
                    complete_ = true;
                    read_line(line, -1);
                } else {
                    return end("this engine serves per-env sockets only");
                }
            }
            if (session_.empty()) return;
        }
    }

    bool next_line(Connection& c, View& line, std::size_t most) {
        if (c.next_line(line)) {
            if (line.size() < most) return true;
        } else if (c.unread().size() < most) {
            return false;
        }
        end("a line is longer than " + detail::number_text(most) + " bytes");
        return false;
    }

    void accept_memory(View line) {
        View rest = detail::trim(line);
        cut_to(rest, "PROOF=");
        std::uint8_t wrong = rest.size() != 32;
        for (std::size_t i = 0; i < 16 && rest.size() == 32; i++) {
            const int high = detail::hex_value(rest[2 * i]), low = detail::hex_value(rest[2 * i + 1]);
            wrong = static_cast<std::uint8_t>(wrong |
                                              (high < 0 || low < 0 || (high * 16 + low) != offered_->header->proof[i]));
        }
        if (wrong) {
            offered_.reset();
            session_[0]->send("SHM=REFUSED;WHY=the%20proof%20is%20not%20this%20segment%27s\n");
            return;
        }
        if (!session_[0]->unread().empty()) return end("the trainer spoke before its offer was answered");
        offered_->unlink();
        offered_->bind(states_, bridge_.layout);
        wiring_ = Wiring::Memory;
        complete_ = true;
        session_[0]->send("SHM=READY\n");
    }

    static void cut_to(View& rest, View word) {
        const std::size_t at = rest.find(word);
        rest = at == View::npos ? View() : rest.substr(at + word.size());
    }

    // In the order they came: those that have spoken, or all where one never does.
    void take_env_sockets(bool spoken) {
        const std::string host = session_[0]->host;
        const std::size_t wanted = env_sockets();
        for (auto& c : waiting_)
            if (session_.size() <= wanted && !c->told && c->host == host && (c->heard || !spoken))
                session_.push_back(std::move(c));
        waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), nullptr), waiting_.end());
        offered_.reset();
        wiring_ = Wiring::PerEnv;
        complete_ = true;
    }

    void hear() {
        View line;
        const std::size_t most = bridge_.layout.max_line;
        if (wiring_ == Wiring::Shared) {
            const bool one_by_one = bridge_.spec.env_type == EnvType::RlBase;  // requests wait for the answer before
            while (!session_.empty() && !session_[0]->clogged() && !(one_by_one && inbox_.open) &&
                   next_line(*session_[0], line, bridge_.layout.calls ? std::max(most, detail::call_limit) : most))
                read_line(line, -1);
            return;
        }
        if (session_[0]->unread().size() >= detail::call_limit) session_[0]->discard();  // what is no call is ignored
        for (std::size_t i = 0; i < session_.size(); i++) {
            if (session_[i]->clogged()) continue;
            while (!session_.empty() && !session_[i]->clogged() &&
                   next_line(*session_[i], line, i ? most : std::max(most, detail::call_limit))) {
                if (i) read_line(line, static_cast<int>(i) - 1);
                else if (bridge_.layout.calls && !detail::call_name(line).empty()) read_line(line, -1);
            }
            if (session_.empty()) return;
        }
    }

    void read_line(View line, int env) {
        std::string text;
        if (!bridge_.spec.version && line.find('\0') != View::npos) {  // which the deployed plugin needs
            std::remove_copy(line.begin(), line.end(), std::back_inserter(text), '\0');
            line = text;
        }
        if (detail::trim(line).empty()) return;
        if (env < 0 && bridge_.layout.calls && !detail::call_name(line).empty()) {
            if (inbox_.open) return end("a call came while a request was open");
            return session_[0]->send(answer_call(line) + "\n");
        }
        if (bridge_.spec.env_type == EnvType::RlBase && detail::same(detail::trim(line), "TRAINING_COMPLETE"))
            return end("");
        if (const Problem problem = detail::read_request(line, env, bridge_, inbox_))
            end("the trainer broke the protocol: " + problem.text);
    }

    // Those that came to a session that is complete, or from elsewhere, are first connections of trainers that wait.
    void tell_busy() {
        for (const auto& c : waiting_) {
            if (c->told || !bridge_.spec.version) continue;
            if (!complete_ && !means_shared_ && c->host == session_[0]->host && env_sockets()) continue;
            c->told = true;
            c->send(detail::busy_line(detail::seconds() - since_, session_[0]->peer));
        }
    }

    // "": the trainer has gone by itself.
    void end(const std::string& why) {
        const bool served = serving();
        detail::Segment* segment = memory();
        if (served && !why.empty()) log("the session was ended: " + why);
        if (segment) segment->tell(why);
        if (!session_.empty()) {
            if (!why.empty() && bridge_.spec.version && wiring_ != Wiring::Memory)
                session_[0]->send(detail::error_line(why));
            const std::string host = session_[0]->host;
            const auto left = [&](const auto& c) { return !complete_ && c->heard && !c->told && c->host == host; };
            waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), left), waiting_.end());
        }
        if (named_) {
            named_->free_slot();
            named_->wake(nullptr);
        } else if (offered_) {
            if (wiring_ == Wiring::Memory) use_own_arrays();
            offered_.reset();
        }
        session_.clear();
        if (std::exchange(playing_, false)) log("the game cannot go on: " + why), error_ = why, stopped_ = true;
        wiring_ = Wiring::Unknown;
        complete_ = means_shared_ = false;
        holder_ = 0;
        text_.clear();
        text_rest_ = 0;
        forget_request();
        inbox_.settings.clear();
        states_.infos.clear();
        if (!served) return;
        const bool paused = std::exchange(paused_, false);
        const Problem problem = detail::guarded(bridge_, [&] {
            if (paused) (void)bridge_.SetPaused(false);
            bridge_.Forget();
            bridge_.SessionEnded(why.empty() ? "the trainer has gone" : why);
            return Problem{};
        });
        if (problem) log(problem.text);
    }
};

std::string text_of(const Bridge& bridge, const AgentView& view) {
    const auto per_env = static_cast<int>(bridge.layout.per_env), place = view.row % per_env;
    const auto size = static_cast<int>(bridge.layout.agents[static_cast<std::size_t>(place)].obs_size);
    const std::vector<std::string>* names = &bridge.spec.obs_names;
    int first = 0;
    for (const Group& group : bridge.spec.agents) {
        if (first <= place && !group.obs_names.empty() && place < first + group.count) names = &group.obs_names;
        first += group.count;
    }
    char number[32];
    const auto shown = [&](double value) { return std::snprintf(number, sizeof number, "%.4g", value), number; };
    std::string text = "env " + std::to_string(view.row / per_env);
    if (per_env > 1) text += ", agent " + std::to_string(place);
    text += ":";
    for (int i = 0; i < size; i++) {
        const auto at = static_cast<std::size_t>(i);
        text += " " + (at < names->size() ? (*names)[at] : "obs[" + std::to_string(i) + "]") + "=";
        text += shown(static_cast<double>(view.observation[i]));
    }
    text += std::string(" | reward ") + shown(static_cast<double>(view.reward)) + ", return ";
    text += shown(view.episode_return);
    text += ", step " + std::to_string(view.steps);
    return text + (view.truncated ? ", truncated" : view.done ? ", done" : "");
}

Server::Server(Bridge& bridge, Options options) : impl_(std::make_unique<Impl>(bridge, std::move(options))) {}
Server::~Server() = default;
bool Server::start() { return impl_->start(); }
const std::string& Server::error() const { return impl_->error(); }
int Server::port() const { return impl_->port(); }
bool Server::serving() const { return impl_->serving(); }
bool Server::tick(int wait_ms) { return impl_->tick(wait_ms); }
void Server::run() { impl_->run(); }
void Server::stop() { impl_->stop(); }

}  // namespace ue_rl

#pragma pop_macro("min")
#pragma pop_macro("max")

#endif  // UE_RL_BRIDGE_IMPLEMENTATION
