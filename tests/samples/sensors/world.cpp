// The common world of tests/samples/test_sensors.py in C++: circles on a plane. Prints the names of the numbers, then
// what is seen from each place, a line each.
//
//   world "RAYS SPREAD LENGTH  ROWS COLUMNS CELL  DEPTH  PLACES [X Y HEADING].. CIRCLES [X Y RADIUS TAG].."
#include <cmath>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "ue_rl_sensors.hpp"

struct Circle {
    double x = 0, y = 0, radius = 0;
    int tag = 0;
};

struct World {
    std::vector<Circle> circles;
    double x = 0, y = 0, heading = 0, cell = 0;

    ue_rl::Hit cast(double angle, double length) const {
        const double ahead = std::cos(heading + angle), aside = std::sin(heading + angle);
        ue_rl::Hit hit{length, -1};
        for (const Circle& c : circles) {
            const double along = (c.x - x) * ahead + (c.y - y) * aside, off = (c.y - y) * ahead - (c.x - x) * aside;
            if (along < 0 || std::fabs(off) > c.radius) continue;
            const double distance = along - std::sqrt(c.radius * c.radius - off * off);
            if (distance < hit.distance) hit = {distance, c.tag};
        }
        return hit;
    }

    std::uint32_t look(double forward, double left) const {
        std::uint32_t bits = 0;
        for (const Circle& c : circles) {
            const double ahead = (c.x - x) * std::cos(heading) + (c.y - y) * std::sin(heading);
            const double aside = (c.y - y) * std::cos(heading) - (c.x - x) * std::sin(heading);
            const double far = std::max(std::fabs(ahead - forward) - cell / 2, 0.0);
            const double wide = std::max(std::fabs(aside - left) - cell / 2, 0.0);
            if (far * far + wide * wide < c.radius * c.radius) bits |= 1u << c.tag;
        }
        return bits;
    }
};

int main(int, char** arguments) {
    std::istringstream in(arguments[1]);
    int count = 0, rows = 0, columns = 0, depth = 0;
    std::size_t places = 0, circles = 0;
    double spread = 0, length = 0;
    World world;
    in >> count >> spread >> length >> rows >> columns >> world.cell >> depth >> places;
    std::vector<World> from(places);
    for (World& place : from) in >> place.x >> place.y >> place.heading;
    world.circles.resize((in >> circles, circles));
    for (Circle& c : world.circles) in >> c.x >> c.y >> c.radius >> c.tag;
    const ue_rl::RaySensor rays(count, spread, length, {"wall", "ball"});
    const ue_rl::GridSensor grid(rows, columns, world.cell, {"wall", "ball"});
    std::vector<std::string> names = rays.names();
    for (const std::string& name : grid.names()) names.push_back(name);
    ue_rl::StackSensor stack(names, depth);
    for (const std::string& name : stack.names()) std::printf("%s ", name.c_str());
    std::vector<float> seen(names.size()), row(static_cast<std::size_t>(stack.size()));
    for (const World& place : from) {
        world.x = place.x, world.y = place.y, world.heading = place.heading;
        float* rest = rays.write([&](double angle, double far) { return world.cast(angle, far); }, seen.data());
        if (rest - seen.data() != rays.size()) return 1;
        rest = grid.write([&](double forward, double left) { return world.look(forward, left); }, rest);
        if (rest - seen.data() != static_cast<std::ptrdiff_t>(seen.size())) return 2;
        stack.write(seen.data(), row.data());
        std::printf("\n");
        for (const float number : row) std::printf("%.9g ", static_cast<double>(number));
    }
    stack.clear();
    stack.write(seen.data(), row.data());
    return row[0] != 0;  // the first of DEPTH is older than the episode
}
