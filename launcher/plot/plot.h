#pragma once

#include <optional>
#include <string>
#include <vector>

// Charts as SVG in one self-contained HTML page without scripts, fonts or downloads.
namespace weft {

struct Curve {
  struct Point {
    double x, y;
  };
  std::string name;
  std::vector<Point> points = {};
};

struct Chart {
  std::string title, x, y;  // y starts at 0 unless all values are close
  std::vector<Curve> curves;
  bool log_x = false, log_y = false;
  std::optional<double> mark = {};  // a vertical line
  std::string mark_name = {};
};

// values[row][column] in [0, 1]: red to green.
struct HeatMap {
  std::string title, x, y;
  std::vector<std::string> columns, rows;
  std::vector<std::vector<double>> values;
};

std::string svg(const Chart& chart);
std::string svg(const HeatMap& map);
std::string page(const std::string& title, const std::vector<std::string>& pictures);

}  // namespace weft
