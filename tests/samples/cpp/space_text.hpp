// A space as docs/protocol.md writes it, as an engine's author would have said it in C++: for the golden vectors.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "ue_rl_bridge.hpp"

struct Unreadable {};

class SpaceText {
public:
    static ue_rl::Space read(const std::string& text) {
        SpaceText reader(text);
        ue_rl::Space space = reader.space();
        if (!reader.rest_.empty()) throw Unreadable{};
        return space;
    }

private:
    explicit SpaceText(const std::string& text) : rest_(text) {}
    std::string rest_;

    bool take(char c) {
        if (rest_.empty() || rest_[0] != c) return false;
        rest_.erase(0, 1);
        return true;
    }
    void need(char c) {
        if (!take(c)) throw Unreadable{};
    }
    std::string until(const char* stops) {
        const std::string part = rest_.substr(0, rest_.find_first_of(stops));
        rest_.erase(0, part.size());
        return part;
    }
    double number() {
        const std::string text = until(":,)]");
        double value = text[0] == '-' ? -HUGE_VAL : HUGE_VAL;  // inf
        if (text.find("inf") == std::string::npos) ue_rl::detail::read_number(text, value);
        return value;
    }
    std::vector<int> shape() {
        std::vector<int> sides;
        if (take('[')) {
            do sides.push_back(static_cast<int>(number()));
            while (take(','));
            need(']');
        }
        return sides;
    }
    ue_rl::Space space() {
        const std::string word = until("(,)");
        if (word == "IMAGE") return ue_rl::ImagePart();
        need('(');
        if (word == "DICT" || word == "TUPLE") return tree(word == "DICT");
        std::vector<ue_rl::Range> ranges;
        std::vector<ue_rl::Choice> choices;
        do {
            const double low = number(), high = take(':') ? number() : low - 1;
            ranges.push_back({low, high});
            if (!std::isfinite(low)) continue;
            const auto from = static_cast<std::int64_t>(low), to = static_cast<std::int64_t>(std::min(high, 1e6));
            choices.push_back(high < low ? ue_rl::Choice(from) : ue_rl::Choice(to - from + 1, from));
        } while (take(','));
        need(')');
        if (word == "DISCRETE") return ue_rl::Discrete(choices[0].count, choices[0].low);
        const std::vector<int> sides = shape();
        if (word == "MULTI_DISCRETE") return ue_rl::MultiDiscrete(choices, sides);
        if (word == "MULTI_BINARY") return ue_rl::MultiBinary(static_cast<int>(choices[0].count), sides);
        if (word != "BOX") throw Unreadable{};
        const std::string types[] = {"", "FLOAT64", "UINT8", "INT8", "INT16", "UINT16", "INT32", "INT64"};
        const auto type = std::find(std::begin(types), std::end(types), until(",)"));
        if (type == std::end(types)) throw Unreadable{};
        return ue_rl::Box(ranges, sides, static_cast<ue_rl::Number>(type - std::begin(types)));
    }
    ue_rl::Space tree(bool named) {
        std::vector<std::pair<std::string, ue_rl::Space>> parts;
        do {
            std::string name;
            if (named && !ue_rl::detail::unquote(until(":"), name, "/[]^*")) throw Unreadable{};
            if (named) need(':');
            parts.emplace_back(name, space());
        } while (take(','));
        need(')');
        std::vector<ue_rl::Space> alone;
        for (const auto& [name, part] : parts) alone.push_back(part);
        return named ? ue_rl::Dict(parts) : ue_rl::Tuple(alone);
    }
};
