// Shows its action as its observation: echo PORT. After an action that begins with ASKED it shows what is not finite
// (numbers_on_the_way.py). Or numbers through C++'s own ways: echo WAY IN OUT (float64 files); how each that is not finite
// was written is printed.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>
#define UE_RL_BRIDGE_IMPLEMENTATION
#include "ue_rl_bridge.hpp"

class Echo : public ue_rl::MultiEnvBridge {
    std::vector<float> shown_ = std::vector<float>(1000);
    float reward_ = 0;
    std::string info_;

    void show(int what) {
        const float special[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                                 -std::numeric_limits<float>::infinity()};
        static const char* const written[] = {"NaN", "Infinity", "-Infinity"};
        if (what < 4) shown_[0] = special[what - 1];
        else if (what < 7) reward_ = special[what - 4];
        else info_ = "{\"x\":" + std::string(written[what - 7]) + "}";  // as most writers that take it write it
    }

public:
    using MultiEnvBridge::MultiEnvBridge;
    void HandleResetForEnv(int, const ue_rl::Reset&) override { shown_.assign(1000, 0.0f), info_.clear(); }
    void HandleResponseActionsForEnv(int, const float* actions) override {
        shown_.assign(actions, actions + 1000);
        reward_ = 0;
        info_.clear();
        if (actions[0] == 1e30f) show(static_cast<int>(actions[1]));
    }
    void CreateStateForEnv(int, float* observation) override {
        std::memcpy(observation, shown_.data(), 1000 * sizeof(float));
    }
    float CalculateRewardForEnv(int, bool& done, bool&) override { return done = false, reward_; }
    std::string CreateInfoForEnv(int) override { return info_; }
};

static std::string written(const std::string& way, double x) {
    if (way == "to_string") return std::to_string(x);
    std::ostringstream out;
    if (way == "<< precision 17") out.precision(17);
    out << x;
    return out.str();
}

int main(int count, char** words) {
    if (count == 4) {
        std::ifstream in(words[2], std::ios::binary);
        std::ofstream out(words[3], std::ios::binary);
        double x;
        while (in.read(reinterpret_cast<char*>(&x), sizeof x)) {
            const std::string text = written(words[1], x);
            if (!std::isfinite(x)) std::printf("fate: %s\n", text.c_str());
            x = std::strtod(text.c_str(), nullptr);
            out.write(reinterpret_cast<const char*>(&x), sizeof x);
        }
        return 0;
    }
    const double inf = std::numeric_limits<double>::infinity();
    ue_rl::Spec spec;
    spec.features.insert(ue_rl::Feature::Info);
    spec.obs_size = 1000, spec.act_size = 1000, spec.act_space = ue_rl::Box(-inf, inf);
    for (int i = 0; i < 200; i++) spec.parameters.push_back({"p" + std::to_string(i), 0, -inf, inf});
    Echo echo(spec);
    ue_rl::Options options;
    options.port = std::atoi(words[1]);
    ue_rl::Server server(echo, options);
    return server.start() ? server.run(), 0 : (std::fprintf(stderr, "%s\n", server.error().c_str()), 1);
}
