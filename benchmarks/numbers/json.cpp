// Numbers through JSON in C++: json WAY IN OUT (float64 files). WAY: "nlohmann" or "RapidJSON" as each comes, or
// "RapidJSON, full precision", which reads with kParseFullPrecisionFlag. How each number that is not finite was written is
// printed; NaN comes back where a writer or a reader refused it.
#include <nlohmann/json.hpp>
#include <rapidjson/document.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>

static std::string written(const std::string& way, double x) {
    if (way == "nlohmann") return nlohmann::json(x).dump();
    rapidjson::StringBuffer text;
    rapidjson::Writer<rapidjson::StringBuffer> writer(text);
    if (!writer.Double(x)) throw std::runtime_error("Writer::Double() is false");
    return text.GetString();
}

static double read(const std::string& way, const std::string& text) {
    if (way == "nlohmann") return nlohmann::json::parse(text).get<double>();
    rapidjson::Document found;
    if (way == "RapidJSON") found.Parse(text.c_str());
    else found.Parse<rapidjson::kParseFullPrecisionFlag>(text.c_str());
    if (found.HasParseError() || !found.IsNumber()) throw std::runtime_error("Document::Parse() has an error");
    return found.GetDouble();
}

int main(int, char** words) {
    std::ifstream in(words[2], std::ios::binary);
    std::ofstream out(words[3], std::ios::binary);
    double x;
    while (in.read(reinterpret_cast<char*>(&x), sizeof x)) {
        const bool finite = std::isfinite(x);
        try {
            const std::string text = written(words[1], x);
            if (!finite) std::printf("fate: %s\n", text.c_str());
            x = std::numeric_limits<double>::quiet_NaN();
            x = read(words[1], text);
        } catch (const std::exception& error) {
            if (!finite) std::printf("refused: %s\n", error.what());
            x = std::numeric_limits<double>::quiet_NaN();
        }
        out.write(reinterpret_cast<const char*>(&x), sizeof x);
    }
}
