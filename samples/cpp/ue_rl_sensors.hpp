// ue_rl_sensors.hpp: what an agent sees, as numbers of its observation: rays, a grid, and the last few observations.
//
// C++17, nothing but the standard library. A sensor asks the game, by a callback, what a ray meets or what lies in a
// cell. It knows its size and its numbers' names, writes float32 into a row, and returns the place behind them:
//
//     ue_rl::RaySensor rays(7, 2.0, 10, {"wall", "ball"});
//     spec.obs_size = rays.size() + 2;
//     spec.obs_names = rays.names();
//     ...
//     float* rest = rays.write([&](double angle, double length) { return cast(env, angle, length); }, observation);
//
// Angles are radians from where the agent looks, positive to its left. The same sensors are in samples/unity and
// samples/godot; all give the same numbers (tests/samples/test_sensors.py).
#ifndef UE_RL_SENSORS_HPP
#define UE_RL_SENSORS_HPP

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ue_rl {

struct Hit {
    double distance;  // the ray's length or more: nothing was met
    int tag = -1;     // which of the sensor's tags; -1: something else
};

// A fan of rays from right to left. Each gives a flag for each tag, and distance / length, where 1 is nothing.
class RaySensor {
public:
    // spread: radians from the first ray to the last; 2 pi or more: a full circle, from straight ahead to the left.
    RaySensor(int rays, double spread, double length, std::vector<std::string> tags)
        : rays_(rays), spread_(spread), length_(length), tags_(std::move(tags)) {}

    int size() const { return rays_ * (static_cast<int>(tags_.size()) + 1); }

    std::vector<std::string> names() const {
        std::vector<std::string> all;
        for (int ray = 0; ray < rays_; ray++) {
            const std::string name = "ray[" + std::to_string(ray) + "]/";
            for (const std::string& tag : tags_) all.push_back(name + tag);
            all.push_back(name + "distance");
        }
        return all;
    }

    double angle(int ray) const {
        constexpr double circle = 6.283185307179586;
        if (spread_ >= circle) return ray * (circle / rays_);
        return rays_ > 1 ? ray * (spread_ / (rays_ - 1)) - spread_ / 2 : 0;
    }

    // cast(angle, length) -> Hit
    template <class Cast>
    float* write(Cast&& cast, float* row) const {
        for (int ray = 0; ray < rays_; ray++) {
            const Hit hit = cast(angle(ray), length_);
            const bool met = hit.distance < length_;
            for (std::size_t tag = 0; tag < tags_.size(); tag++) *row++ = met && hit.tag == static_cast<int>(tag);
            *row++ = met ? static_cast<float>(std::max(hit.distance, 0.0) / length_) : 1.0f;
        }
        return row;
    }

private:
    int rays_;
    double spread_, length_;
    std::vector<std::string> tags_;
};

// Square cells around the agent, row by row from behind it, in a row from right to left: a flag for each tag.
class GridSensor {
public:
    GridSensor(int rows, int columns, double cell, std::vector<std::string> tags)  // 32 tags at most
        : rows_(rows), columns_(columns), cell_(cell), tags_(std::move(tags)) {}

    int size() const { return rows_ * columns_ * static_cast<int>(tags_.size()); }

    std::vector<std::string> names() const {
        std::vector<std::string> all;
        for (int row = 0; row < rows_; row++)
            for (int column = 0; column < columns_; column++)
                for (const std::string& tag : tags_)
                    all.push_back("cell[" + std::to_string(row) + "][" + std::to_string(column) + "]/" + tag);
        return all;
    }

    // look(forward, left) -> bits: what is in the cell whose centre is so far from the agent; bit k: tag k is there.
    template <class Look>
    float* write(Look&& look, float* row) const {
        for (int i = 0; i < rows_; i++)
            for (int k = 0; k < columns_; k++) {
                const std::uint32_t bits = look((i - (rows_ - 1) / 2.0) * cell_, (k - (columns_ - 1) / 2.0) * cell_);
                for (std::size_t tag = 0; tag < tags_.size(); tag++) *row++ = static_cast<float>(bits >> tag & 1);
            }
        return row;
    }

private:
    int rows_, columns_;
    double cell_;
    std::vector<std::string> tags_;
};

// The last `depth` observations of one agent, the oldest first; before the episode began they are zeros.
class StackSensor {
public:
    StackSensor(const std::vector<std::string>& names, int depth) : width_(names.size()) {
        for (int age = depth - 1; age >= 0; age--)
            for (const std::string& name : names) names_.push_back(name + "[" + std::to_string(-age) + "]");
        kept_.resize(names_.size());
    }

    int size() const { return static_cast<int>(kept_.size()); }
    std::vector<std::string> names() const { return names_; }

    void clear() { std::fill(kept_.begin(), kept_.end(), 0.0f); }  // an episode begins

    // `numbers`: the newest observation, as many as there are names. Once for each observation.
    float* write(const float* numbers, float* row) {
        std::rotate(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(width_), kept_.end());
        std::copy_n(numbers, width_, kept_.end() - static_cast<std::ptrdiff_t>(width_));
        return std::copy(kept_.begin(), kept_.end(), row);
    }

private:
    std::size_t width_;
    std::vector<std::string> names_;
    std::vector<float> kept_;
};

}  // namespace ue_rl

#endif  // UE_RL_SENSORS_HPP
