// An engine with everything beside plain steps, for tests/samples/test_cpp_sessions.py.
//
//   lab KIND [PORT | shm:NAME [SILENCE STARTING]]      prints "PORT n"; seconds, see detail::silence
//   lab KIND heuristic                                  plays eight rounds itself, and shows them
//
// KIND plain: 3 envs, DISCRETE(3) with masks, options, infos, parameters and all calls; actions other than RESET take
// two ticks in env 2. KIND agents: 2 envs with two hunters (BOX) and one prey (DISCRETE(3), masked); the prey leaves
// after two steps and comes back at the fourth. KIND thrower: throws in its first step of env 0. KIND single, rlbase:
// one env whose observation counts the steps. KIND tree, image: spaces of several parts.
#include <cstdio>
#include <stdexcept>
#include <string>

#define UE_RL_BRIDGE_IMPLEMENTATION
#include "ue_rl_bridge.hpp"

using namespace ue_rl;

class Plain : public MultiEnvBridge {
public:
    using MultiEnvBridge::MultiEnvBridge;
    void HandleResetForEnv(int env, const Reset& reset) override {
        position[env] = reset.seed >= 0 ? static_cast<float>(reset.seed) : 0.0f;
        options[env] = reset.options;
        steps[env] = 0;
    }
    void HandleResponseActionsForEnv(int env, const float* actions) override {
        position[env] += actions[0] * static_cast<float>(GetParameter(0, env));
        steps[env]++;
        ticks = 0;
    }
    bool IsActionRunningForEnv(int env) override { return env == 2 && ++ticks < 2; }
    void CreateStateForEnv(int env, float* obs) override {
        obs[0] = position[env];
        obs[1] = static_cast<float>(steps[env]);
    }
    float CalculateRewardForEnv(int env, bool& done, bool& truncated) override {
        done = truncated = steps[env] >= 4;
        return scale * position[env];
    }
    void CreateMaskForEnv(int env, std::uint8_t* mask) override {
        if (layout.mask_size) mask[1] = steps[env] % 2 == 0;
    }
    std::string CreateInfoForEnv(int env) override {
        if (options[env].empty()) return "";
        return "{\"options\": " + std::exchange(options[env], "") + ", \"\\u00fc|;\": \"\xC3\xBC\"}";
    }
    std::string SetTimeScale(double value) override { return scale = static_cast<float>(value), ""; }
    std::string SetPaused(bool on) override { return paused = on, ""; }
    std::string Render(int env, Picture& picture) override {
        if (env == 1) return "env 1 has no camera";
        picture = {300, 400, 3, std::vector<std::uint8_t>(360000, static_cast<std::uint8_t>(paused ? 7 : env))};
        return "";
    }
    std::string ComputeRewards(const Goals& goals, std::vector<float>& rewards) override {
        for (std::size_t i = 0; i < goals.pairs; i++)
            rewards.push_back(goals.achieved[i * goals.achieved_size] - goals.desired[i * goals.desired_size]);
        return "";
    }
    float position[3] = {}, scale = 1;
    int steps[3] = {}, ticks = 0;
    bool paused = false;
    std::string options[3];
};

class Agents : public VectorBridge {
public:
    using VectorBridge::VectorBridge;
    void ResetEnvs(const std::vector<Reset>& resets, States& states) override {
        for (const Reset& reset : resets) {
            steps[reset.env] = 0;
            for (int k = 0; k < 3; k++) observe(reset.env * 3 + k, states);
        }
    }
    void StepEnvs(const float* actions, const std::vector<int>& rows, States& states) override {
        bool stepped[2] = {};
        for (const int row : rows) {
            if (!std::exchange(stepped[row / 3], true)) steps[row / 3]++;
            const int step = steps[row / 3];
            observe(row, states);
            states.rewards[row] = actions[row * spec.act_size];
            states.dones[row] = step >= 6 || (row % 3 == 2 && step == 2);
            states.truncateds[row] = 0;
        }
        for (int env = 0; env < 2; env++) {
            if (!stepped[env] || steps[env] != 4) continue;
            observe(env * 3 + 2, states);  // the prey is back
            states.present[env * 3 + 2] = 1;
        }
    }
    void observe(int row, States& states) const {
        float* obs = states.obs + row * spec.obs_size;
        obs[0] = static_cast<float>(row);
        obs[1] = static_cast<float>(steps[row / 3]);
        if (row % 3 == 2) obs[2] = 0.1f;
        if (row % 3 == 2) states.masks[static_cast<std::size_t>(row) * layout.mask_size] = 0;
    }
    int steps[2] = {};
};

class Counter : public MultiEnvBridge {
public:
    using MultiEnvBridge::MultiEnvBridge;
    void HandleResetForEnv(int, const Reset&) override { steps = 0; }
    void HandleResponseActionsForEnv(int env, const float*) override {
        steps++;
        if (throws && env == 0 && std::exchange(throws, false))
            throw std::runtime_error("no ammunition; sorry | \xC3\xBC");
    }
    void CreateStateForEnv(int, float* obs) override {
        for (int i = 0; i < spec.obs_size; i++) obs[i] = static_cast<float>(steps);
    }
    float CalculateRewardForEnv(int, bool& done, bool&) override { return done = steps >= 3, 1.0f; }
    void CreateImageForEnv(int env, std::uint8_t* pixels) override {
        for (std::size_t i = 0; i < layout.image.bytes(); i++) pixels[i] = static_cast<std::uint8_t>(steps * 10 + env);
    }
    int steps = 0;
    bool throws = false;
};

static int serve(Bridge& bridge, const std::string& where) {
    Options options;
    if (where == "heuristic") {  // eight rounds of ones
        static int rounds = 0;
        options.heuristic = [&](const AgentView& view, float* action) {
            if (view.row == 0 && ++rounds > 8) throw std::runtime_error("enough");
            std::fill_n(action,
                        bridge.layout.agents[static_cast<std::size_t>(view.row) % bridge.layout.per_env].act_size,
                        1.0f);
        };
        options.show = [&](const AgentView& view) {
            std::printf("%s%s\n", text_of(bridge, view).c_str(), !view.mask ? "" : view.mask[1] ? " 1" : " 0");
        };
        Server server(bridge, options);
        if (server.start()) server.run();
        return std::printf("%s\n", server.error().c_str()), 0;
    }
    if (where.rfind("shm:", 0) == 0) options.shm_name = where.substr(4);
    else options.port = std::stoi(where);
    options.ring_size = 65536;
    Server server(bridge, options);
    if (!server.start()) return std::fprintf(stderr, "%s\n", server.error().c_str()), 1;
    std::printf("PORT %d\n", server.port());
    std::fflush(stdout);
    server.run();
    return 0;
}

int main(int count, char** arguments) {
    const std::string kind = count > 1 ? arguments[1] : "plain", where = count > 2 ? arguments[2] : "0";
    if (count > 4) detail::silence = std::stod(arguments[3]), detail::starting = std::stod(arguments[4]);
    Spec spec;
    spec.obs_size = 2;
    if (kind == "plain") {
        spec.num_envs = 3;
        spec.act_space = Discrete(3);
        spec.features = {Feature::Seed,      Feature::Options, Feature::Trunc,  Feature::Info,      Feature::Mask,
                         Feature::TimeScale, Feature::Pause,   Feature::Render, Feature::GoalReward};
        spec.parameters = {{"step size", 1, 0, 10}, {"wind", -0.5}};
        spec.obs_names = {"position[m]", "steps"};
        Plain bridge(spec);
        return serve(bridge, where);
    }
    if (kind == "agents") {
        spec.obs_size = 3;
        spec.act_size = 2;
        spec.num_envs = 2;
        spec.features = {Feature::Mask};
        spec.agents = {{"hunter", 2, 2, 0, {}, {}, {}, {}}, {"prey", 1, 0, 1, {}, Discrete(3), {}, {}}};
        Agents bridge(spec);
        return serve(bridge, where);
    }
    if (kind == "single") spec.env_type = EnvType::Single;
    if (kind == "rlbase") spec.env_type = EnvType::RlBase, spec.version = 0;
    if (kind == "tree") {
        const double inf = std::numeric_limits<double>::infinity();
        spec.obs_size = spec.act_size = 3;
        spec.obs_space = Dict({{"pose", Box(-inf, inf, {2})}, {"count", Discrete(100)}});
        spec.act_space = Tuple({Discrete(3, -1), Box(-2, 2, {2})});
    }
    if (kind == "image") spec.num_envs = 2, spec.image = {4, 5, 3};
    if (kind == "thrower") spec.num_envs = 2;
    Counter bridge(spec);
    bridge.throws = kind == "thrower";
    return serve(bridge, where);
}
