// The game of reach.cpp: a point with inertia in a square moves to a target.
//
// Action: acceleration, 2 numbers in [-1, 1]. Observation: position, velocity, target minus position; numbers beyond
// these six are half of the one six before. Reward: -distance / 10, and 5 on arrival (terminated). Truncated after
// max_steps (0: no episode ever ends, to measure). The same seeds and actions give the same numbers, to the bit, on
// every machine with IEEE floats. cost_us: microseconds that a step of all envs costs besides.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <vector>

#include "ue_rl_bridge.hpp"

namespace reach {

struct Settings {
    int num_envs = 8, obs_size = 6, cost_us = 0, max_steps = 60;
    std::int64_t seed = 0;
    bool demo = false;  // the script of reach.cpp plays
};

// One env's point. The same in both kinds of bridge.
struct Point {
    float x = 0, y = 0, vx = 0, vy = 0, target_x = 0, target_y = 0;
    int steps = 0;
    std::uint64_t random = 0;

    // SplitMix64; 24 bits of it as a float in [-1, 1), exactly.
    float uniform() {
        std::uint64_t z = random += 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        z ^= z >> 31;
        return static_cast<float>(z >> 40) * (1.0f / 8388608.0f) - 1.0f;
    }

    void reset(std::int64_t seed) {
        if (seed >= 0) random = static_cast<std::uint64_t>(seed);
        x = uniform(), y = uniform(), target_x = uniform(), target_y = uniform();
        vx = vy = 0;
        steps = 0;
    }

    static float within(float value, float limit) { return value < -limit ? -limit : value > limit ? limit : value; }

    float step(const float* action, float power, int max_steps, bool& arrived, bool& late) {
        vx = 0.9f * vx + within(action[0], 1) * 0.2f * power;
        vy = 0.9f * vy + within(action[1], 1) * 0.2f * power;
        x = within(x + vx * 0.1f, 1.5f);
        y = within(y + vy * 0.1f, 1.5f);
        steps++;
        const float dx = target_x - x, dy = target_y - y, distance = std::sqrt(dx * dx + dy * dy);
        const bool there = distance < 0.15f;
        arrived = there && max_steps;
        late = !there && max_steps && steps >= max_steps;
        return there ? 5.0f : distance * -0.1f;
    }

    void observe(float* obs, int size) const {
        const float numbers[6] = {x, y, vx, vy, target_x - x, target_y - y};
        for (int i = 0; i < size; i++) obs[i] = i < 6 ? numbers[i] : obs[i - 6] * 0.5f;
    }
};

inline void spend(int microseconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds);
    while (microseconds && std::chrono::steady_clock::now() < end) {}
}

inline std::vector<Point> points(const Settings& settings) {
    std::vector<Point> all(static_cast<std::size_t>(settings.num_envs));
    for (std::size_t env = 0; env < all.size(); env++)
        all[env].random = static_cast<std::uint64_t>(settings.seed) + env;
    return all;
}

inline ue_rl::Spec spec_of(const Settings& settings) {
    ue_rl::Spec spec;
    spec.obs_size = settings.obs_size;
    spec.act_size = 2;
    spec.num_envs = settings.num_envs;
    if (settings.obs_size == 6) spec.obs_names = {"x", "y", "vx", "vy", "dx", "dy"};
    spec.features = {ue_rl::Feature::Seed, ue_rl::Feature::Trunc};
    if (settings.demo) spec.features.insert({ue_rl::Feature::Demo, ue_rl::Feature::Info});
    spec.parameters = {{"power", 1, 0.1, 10}};
    return spec;
}

class VectorReach : public ue_rl::VectorBridge {
public:
    explicit VectorReach(const Settings& settings)
        : VectorBridge(spec_of(settings)), settings_(settings), points_(points(settings)) {}

    void ResetEnvs(const std::vector<ue_rl::Reset>& resets, ue_rl::States& states) override {
        for (const ue_rl::Reset& reset : resets) {
            Point& point = points_[static_cast<std::size_t>(reset.env)];
            point.reset(reset.seed);
            point.observe(states.obs + reset.env * spec.obs_size, spec.obs_size);
        }
    }

    void StepEnvs(const float* actions, const std::vector<int>& rows, ue_rl::States& states) override {
        spend(settings_.cost_us);
        for (const int env : rows) {
            Point& point = points_[static_cast<std::size_t>(env)];
            bool arrived = false, late = false;
            const auto power = static_cast<float>(GetParameter(0, env));
            states.rewards[env] = point.step(actions + env * 2, power, settings_.max_steps, arrived, late);
            states.dones[env] = arrived;
            states.truncateds[env] = late;
            point.observe(states.obs + env * spec.obs_size, spec.obs_size);
        }
    }

private:
    Settings settings_;
    std::vector<Point> points_;
};

class PerEnvReach : public ue_rl::MultiEnvBridge {
public:
    explicit PerEnvReach(const Settings& settings)
        : MultiEnvBridge(spec_of(settings)), settings_(settings), points_(points(settings)), last_(points_.size()) {}

    void HandleResetForEnv(int env, const ue_rl::Reset& reset) override { at(env).reset(reset.seed); }
    void HandleResponseActionsForEnv(int env, const float* actions) override {
        if (env == 0) spend(settings_.cost_us);
        Last& last = last_[static_cast<std::size_t>(env)];
        last.reward = at(env).step(actions, static_cast<float>(GetParameter(0, env)), settings_.max_steps, last.arrived,
                                   last.late);
    }
    void CreateStateForEnv(int env, float* observation) override { at(env).observe(observation, spec.obs_size); }
    float CalculateRewardForEnv(int env, bool& done, bool& truncated) override {
        const Last& last = last_[static_cast<std::size_t>(env)];
        done = last.arrived;
        truncated = last.late;
        return last.reward;
    }

private:
    struct Last {
        float reward = 0;
        bool arrived = false, late = false;
    };
    Settings settings_;
    std::vector<Point> points_;
    std::vector<Last> last_;
    Point& at(int env) { return points_[static_cast<std::size_t>(env)]; }
};

}  // namespace reach
