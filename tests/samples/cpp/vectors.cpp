// Runs the golden vectors of docs/protocol-vectors.json through ue_rl_bridge.hpp; see tests/samples/test_cpp_lines.py.
//
// Standard input: one vector a line, fields with tabs between them, the first the kind. Standard output: one line each.
//   handshake  CONFIG                  the handshake that the header writes for it
//   request    CONFIG  LINE  ENV       what the inbox holds (ENV: whose socket, -1: the shared channel)
//   reply      CONFIG  SEQ  ROW..      the line of these rows; ROW: env agent reward done truncated mask info obs,..
//   call       CONFIG  LINE  SETTINGS  the answer; SETTINGS are set before
//   busy       SINCE  PEER             the line
//   error      TEXT                    the line
// A refusal is "REJECT KIND".
#include <clocale>
#include <cstdio>
#include <iostream>
#include <locale>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#define UE_RL_BRIDGE_IMPLEMENTATION
#include "space_text.hpp"

using namespace ue_rl;
namespace d = ue_rl::detail;

static std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::string part;
    std::stringstream stream(text);
    while (std::getline(stream, part, separator)) parts.push_back(part);
    return parts;
}

static std::vector<std::string> names_of(const std::string& text) {
    std::vector<std::string> names;
    for (const std::string& part : split(text, ',')) names.emplace_back(), d::unquote(part, names.back(), "/[]^*");
    return names;
}

static int integer(const std::string& text) {
    std::uint64_t value = 0;
    if (!d::read_integer(d::trim(text), INT32_MAX, value)) throw Unreadable{};
    return static_cast<int>(value);
}

static const std::string feature_names[] = {"SEED",       "OPTIONS", "TRUNC",  "INFO",       "MASK",
                                            "TIME_SCALE", "PAUSE",   "RENDER", "GOAL_REWARD"};

static Image image_of(const std::string& text) {
    const auto sides = split(text.substr(4, text.find(')') - 4), ',');
    const auto side = [&](std::size_t i) {
        return static_cast<std::uint32_t>(i < sides.size() ? integer(sides[i]) : 0);
    };
    const bool only = text.find(",ONLY") != std::string::npos;
    if (text[0] == 'C') return {side(1), side(2), side(0), true, only};
    return {side(0), side(1), side(2), false, only};
}

// A handshake as a Spec: what an engine's author would have written.
static Spec spec_of(const std::string& config) {
    Spec spec;
    spec.version = 0;
    spec.obs_size = spec.act_size = spec.num_envs = 0;
    spec.env_type = EnvType::RlBase;
    if (!d::same(config.substr(0, 7), "CONFIG:")) throw Unreadable{};
    std::map<std::string, std::string> fields;
    for (const std::string& field : split(config.substr(7), ';')) {
        if (d::trim(field).empty()) continue;
        const std::size_t at = field.find('=');
        std::string key(d::trim(field.substr(0, at)));
        for (std::size_t i = 0; i < std::min(key.find('.'), key.size()); i++) key[i] = d::upper(key[i]);
        if (!fields.emplace(key, d::trim(field.substr(at + 1))).second) throw Unreadable{};
    }
    const auto take = [&](const std::string& key, auto use) {
        const auto found = fields.find(key);
        if (found != fields.end()) use(found->second);
    };
    take("OBS", [&](auto& v) { spec.obs_size = integer(v); });
    take("ACT", [&](auto& v) { spec.act_size = integer(v); });
    take("ENV_TYPE", [&](auto& v) {
        spec.env_type = d::same(v, "MULTI") ? EnvType::Multi : d::same(v, "SINGLE") ? EnvType::Single : EnvType::RlBase;
    });
    if (spec.env_type != EnvType::Multi) spec.num_envs = 1;
    take("ENV_COUNT", [&](auto& v) { spec.num_envs = integer(v); });
    take("VERSION", [&](auto& v) { spec.version = integer(v); });
    take("CHANNEL", [&](auto& v) {
        spec.channel = v == "ANY" ? Channel::Any : v == "SHARED" ? Channel::Shared : Channel::PerEnv;
    });
    take("ACT_SPACE", [&](auto& v) { spec.act_space = SpaceText::read(v); });
    take("OBS_SPACE", [&](auto& v) { spec.obs_space = SpaceText::read(v); });
    take("IMAGE", [&](auto& v) { spec.image = image_of(v); });
    take("FEATURES", [&](auto& v) {
        for (const std::string& name : split(v, ',')) {
            const auto* found = std::find(std::begin(feature_names), std::end(feature_names), name);
            if (found != std::end(feature_names))
                spec.features.insert(static_cast<Feature>(found - std::begin(feature_names)));
        }
    });
    take("OBS_NAMES", [&](auto& v) { spec.obs_names = names_of(v); });
    take("ACT_NAMES", [&](auto& v) { spec.act_names = names_of(v); });
    take("PARAMS", [&](auto& v) {
        for (const std::string& text : split(v, ',')) {
            const auto parts = split(text, ':');
            Parameter p;
            d::unquote(parts[0], p.name, "/[]^*");
            d::read_number(parts.at(1), p.value);
            if (parts.size() > 2) d::read_number(parts[2], p.low), d::read_number(parts[3], p.high);
            spec.parameters.push_back(p);
        }
    });
    take("AGENTS", [&](auto& v) {
        for (const std::string& text : split(v, ',')) {
            Group group;
            const std::string name = text.substr(0, text.find(':'));
            d::unquote(name, group.name, "/[]^*");
            group.count = integer(text.substr(text.find(':') + 1));
            take("OBS." + name, [&](auto& x) { group.obs_size = integer(x); });
            take("ACT." + name, [&](auto& x) { group.act_size = integer(x); });
            take("OBS_SPACE." + name, [&](auto& x) { group.obs_space = SpaceText::read(x); });
            take("ACT_SPACE." + name, [&](auto& x) { group.act_space = SpaceText::read(x); });
            take("OBS_NAMES." + name, [&](auto& x) { group.obs_names = names_of(x); });
            take("ACT_NAMES." + name, [&](auto& x) { group.act_names = names_of(x); });
            spec.agents.push_back(group);
        }
    });
    return spec;
}

class Game : public VectorBridge {
public:
    using VectorBridge::VectorBridge;
    void ResetEnvs(const std::vector<Reset>&, States&) override {}
    void StepEnvs(const float*, const std::vector<int>&, States&) override {}
    std::string SetTimeScale(double) override { return ""; }
    std::string SetPaused(bool) override { return "a match is on"; }
    std::string Render(int, Picture& picture) override {
        picture = {2, 1, 3, {0, 1, 2, 3, 4, 255}};
        return "";
    }
    std::string ComputeRewards(const Goals& goals, std::vector<float>& rewards) override {
        rewards.clear();  // minus one where the first numbers are those of the vector's first pair
        for (std::size_t i = 0; i < goals.pairs; i++)
            rewards.push_back(goals.achieved[i * goals.achieved_size] == 1 ? -1.0f : 0.0f);
        return "";
    }
};

static std::string request(const Game& game, const std::string& line, int env) {
    Inbox inbox;
    inbox.clear(game.layout);
    Problem problem = d::read_request(line, env, game, inbox);
    if (!problem) problem = d::check_choices(game, inbox);
    if (problem) return "REJECT " + problem.kind;
    std::string out;
    const std::size_t per_env = game.layout.per_env, width = game.layout.act_size;
    for (std::size_t row = 0; row < game.layout.rows; row++) {
        const std::size_t id = row / per_env;
        if (inbox.command[row] == Inbox::Nothing || (inbox.command[row] == Inbox::ResetEnv && row % per_env)) continue;
        out += "env " + d::number_text(id);
        if (inbox.command[row] == Inbox::Step) {
            out += " agent " + d::number_text(row % per_env) + " act";
            for (std::size_t i = 0; i < game.layout.agents[row % per_env].act_size; i++)
                out += " " + d::number_text(inbox.actions[row * width + i]);
        } else {
            out += " reset seed " + d::number_text(inbox.seeds[id]) + " options " +
                   inbox.options[static_cast<int>(id)] + " set";
            for (const auto& [parameter, value] : inbox.settings[static_cast<int>(id)])
                out += " " + game.spec.parameters[parameter].name + ":" + d::number_text(value);
        }
        out += "|";
    }
    return inbox.seq ? out + "seq " + d::number_text(inbox.seq) : out;
}

static std::string reply(const Game& game, const std::vector<std::string>& fields) {
    std::string line;
    const auto width = static_cast<std::size_t>(game.spec.obs_size);
    std::vector<float> obs(game.layout.rows * width), rewards(game.layout.rows);
    std::vector<std::uint8_t> dones(game.layout.rows), truncateds(game.layout.rows),
        masks(game.layout.rows * game.layout.mask_size + 1, 1);
    States states;
    states.obs = obs.data(), states.rewards = rewards.data(), states.dones = dones.data(),
    states.truncateds = truncateds.data(), states.masks = masks.data();
    for (std::size_t i = 3; i < fields.size(); i++) {
        const auto parts = split(fields[i], ' ');
        const auto row = static_cast<std::size_t>(integer(parts[0])) * game.layout.per_env +
                         static_cast<std::size_t>(integer(parts[1]));
        std::size_t count = 0;
        d::read_floats(parts[2], &rewards[row], 1, count);
        dones[row] = parts[3] == "1", truncateds[row] = parts[4] == "1";
        for (std::size_t k = 0; parts[5] != "-" && k < parts[5].size(); k++)
            masks[row * game.layout.mask_size + k] = parts[5][k] == '1';
        if (parts[6] != "-") d::unquote(parts[6], states.infos[static_cast<int>(row)]);
        d::read_floats(parts[7], &obs[row * width], width, count);
        if (!line.empty()) line += "||";
        d::append_state(line, game, states, row, game.spec.env_type == EnvType::Multi);
    }
    d::append_seq(line, static_cast<std::uint64_t>(integer(fields[2])));
    return line;
}

static std::string run(const std::vector<std::string>& fields) {
    if (fields[0] == "busy") {
        double since = 0;  // not std::stod: it knows the locale
        d::read_number(fields.at(1), since);
        return d::busy_line(since, fields.at(2));
    }
    if (fields[0] == "error") return d::error_line(fields[1]);
    const Spec spec = spec_of(fields[1]);
    Game game(spec);
    if (!game.layout.problem.empty()) return "REJECT HandshakeError";
    if (fields[0] == "handshake") return game.layout.config;
    if (fields[0] == "request") return request(game, fields[2], std::stoi(fields[3]));
    if (fields[0] == "reply") return reply(game, fields);
    std::vector<std::pair<std::size_t, double>> settings;
    if (fields.size() > 3 && !fields[3].empty()) d::read_settings(fields[3], spec, settings);
    for (const auto& [parameter, value] : settings) game.SetParameter(parameter, value, -1);
    d::View line = fields[2];
    std::uint64_t seq = 0;
    Problem problem = d::cut_seq(line, seq);
    std::string answer = problem ? "" : d::answer_call(game, line, problem);
    if (problem) answer = "REFUSED=" + d::quoted(problem.text);
    if (problem && problem.kind != "CommandFailed") return "REJECT " + problem.kind;
    d::append_seq(answer, seq);
    return answer;
}

int main(int count, char** arguments) {
    if (count > 1) {  // a locale, whose decimal comma must change nothing
        std::setlocale(LC_ALL, arguments[1]);
        std::locale::global(std::locale(arguments[1]));
        std::fprintf(stderr, "%.1f\n", 0.5);
    }
    std::string line;
    while (std::getline(std::cin, line)) {
        std::string out;
        try {
            out = run(split(line, '\t'));
        } catch (const Unreadable&) { out = "REJECT HandshakeError"; }
        if (!out.empty() && out.back() == '\n') out.pop_back();
        std::fwrite(out.data(), 1, out.size(), stdout);
        std::fputc('\n', stdout);
    }
}
