#include "launcher/plot/plot.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace weft {
namespace {

constexpr double kWidth = 720, kHeight = 400, kLeft = 70, kRight = 20, kTop = 40, kBottom = 50;
constexpr const char* kColors[] = {"#1f5fa8", "#c4471b", "#2e8b57", "#8a4fa3",
                                   "#b58900", "#4a4a4a", "#d0568f", "#0f8b8d"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string label(double x, double y, const char* anchor, const std::string& text,
                  const std::string& more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y,
                     anchor, more, escaped(text));
}

// One axis: maps numbers to pixels and places the ticks.
struct Scale {
  double low, high, from, to;
  bool log;

  double place(double value) const { return log ? std::log(value) : value; }
  double at(double value) const {
    const double a = place(low), b = place(high);
    return from + (to - from) * (b > a ? (place(value) - a) / (b - a) : 0.5);
  }
  std::vector<double> ticks() const {
    std::vector<double> out;
    if (log) {
      const double base = high / low > 1e4 ? 10 : 2;
      for (double t = std::pow(base, std::ceil(std::log(low) / std::log(base) - 1e-9));
           t <= high * (1 + 1e-9); t *= base) {
        out.push_back(t);
      }
      return out;
    }
    const double rough = std::max((high - low) / 5, 1e-12);
    const double power = std::pow(10.0, std::floor(std::log10(rough)));
    double step = power;
    for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
      step = factor * power;
      if (step >= rough) break;
    }
    for (double t = std::ceil(low / step - 1e-9) * step; t <= high + step * 1e-9; t += step) {
      out.push_back(std::abs(t) < step * 1e-9 ? 0 : t);
    }
    return out;
  }
};

std::string number(double value) {
  const double size = std::abs(value);
  if (size >= 1024 && std::fmod(value, 1024) == 0) return fmt::format("{:.0f}K", value / 1024);
  return fmt::format("{:.4g}", value);
}

struct Range {
  double low = 0, high = 1;
};

Range range_of(const Chart& chart, double Curve::Point::*part, bool log) {
  bool any = false;
  Range r;
  for (const Curve& curve : chart.curves) {
    for (const Curve::Point& p : curve.points) {
      if (!std::isfinite(p.*part) || (log && p.*part <= 0)) continue;
      r.low = any ? std::min(r.low, p.*part) : p.*part;
      r.high = any ? std::max(r.high, p.*part) : p.*part;
      any = true;
    }
  }
  return r;
}

std::string frame(const Scale& x, const Scale& y) {
  std::string out;
  for (const double t : x.ticks()) {
    out += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#e4e4e4\"/>\n", x.at(t),
        kTop, kHeight - kBottom);
    out += label(x.at(t), kHeight - kBottom + 16, "middle", number(t));
  }
  for (const double t : y.ticks()) {
    out += fmt::format(
        "<line x1=\"{1}\" x2=\"{2}\" y1=\"{0:.1f}\" y2=\"{0:.1f}\" stroke=\"#e4e4e4\"/>\n", y.at(t),
        kLeft, kWidth - kRight);
    out += label(kLeft - 6, y.at(t) + 4, "end", number(t));
  }
  return out;
}

std::string head(double width, double height, const std::string& title) {
  return fmt::format(
             "<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
             "font-family=\"sans-serif\" font-size=\"12\">\n",
             width, height) +
         label(kLeft, 22, "start", title, " font-size=\"15\" font-weight=\"bold\"");
}

}  // namespace

std::string svg(const Chart& chart) {
  Range xs = range_of(chart, &Curve::Point::x, chart.log_x);
  Range ys = range_of(chart, &Curve::Point::y, chart.log_y);
  if (!chart.log_y && ys.low > 0 && ys.low < 0.5 * ys.high) ys.low = 0;
  if (ys.low == ys.high) ys.high = ys.low + std::max(1e-9, std::abs(ys.low) * 0.1);
  const Scale x{xs.low, xs.high, kLeft, kWidth - kRight, chart.log_x};
  const Scale y{ys.low, ys.high, kHeight - kBottom, kTop, chart.log_y};
  std::string out = head(kWidth, kHeight, chart.title) + frame(x, y);
  if (chart.mark && *chart.mark >= xs.low && *chart.mark <= xs.high) {
    out += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" stroke=\"#888\" "
        "stroke-dasharray=\"5 4\"/>\n",
        x.at(*chart.mark), kTop, kHeight - kBottom);
    out += label(x.at(*chart.mark) + 4, kTop + 12, "start", chart.mark_name);
  }
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    const char* color = kColors[i % std::size(kColors)];
    std::string points;
    for (const Curve::Point& p : chart.curves[i].points) {
      if (!std::isfinite(p.y) || (chart.log_y && p.y <= 0)) continue;
      points += fmt::format("{:.1f},{:.1f} ", x.at(p.x), y.at(p.y));
    }
    out += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\" points=\"{}\"/>\n",
                       color, points);
    const double line = kTop + 14 * (static_cast<double>(i) + 1);
    out += label(kWidth - kRight - 6, line, "end", chart.curves[i].name,
                 fmt::format(" fill=\"{}\"", color));
  }
  out += label((kLeft + kWidth - kRight) / 2, kHeight - 12, "middle", chart.x);
  out += label(16, (kTop + kHeight - kBottom) / 2, "middle", chart.y,
               fmt::format(" transform=\"rotate(-90 16 {:.0f})\"", (kTop + kHeight - kBottom) / 2));
  return out + "</svg>\n";
}

std::string svg(const HeatMap& map) {
  constexpr double kCellWidth = 64, kCellHeight = 30, kNames = 110;
  const double width = kNames + kCellWidth * static_cast<double>(map.columns.size()) + kRight;
  const double height = kTop + kCellHeight * static_cast<double>(map.rows.size()) + kBottom;
  std::string out = head(std::max(width, 360.0), height, map.title);
  for (size_t r = 0; r < map.rows.size(); ++r) {
    const double top = kTop + kCellHeight * static_cast<double>(r);
    out += label(kNames - 8, top + 20, "end", map.rows[r]);
    for (size_t c = 0; c < map.columns.size(); ++c) {
      const double left = kNames + kCellWidth * static_cast<double>(c), v = map.values[r][c];
      out += fmt::format(
          "<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\" "
          "fill=\"hsl({:.0f},60%,65%)\"/>\n",
          left, top, kCellWidth - 2, kCellHeight - 2, 120 * std::clamp(v, 0.0, 1.0));
      out += label(left + kCellWidth / 2, top + 19, "middle", fmt::format("{:.0f} %", 100 * v));
    }
  }
  const double below = kTop + kCellHeight * static_cast<double>(map.rows.size());
  for (size_t c = 0; c < map.columns.size(); ++c) {
    out += label(kNames + kCellWidth * (static_cast<double>(c) + 0.5), below + 16, "middle",
                 map.columns[c]);
  }
  out += label(kNames, below + 38, "start", fmt::format("{} (columns), {} (rows)", map.x, map.y));
  return out + "</svg>\n";
}

std::string page(const std::string& title, const std::vector<std::string>& pictures) {
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title></head>\n"
      "<body style=\"font-family:sans-serif;max-width:800px;margin:2em auto\">\n<h1>{0}</h1>\n",
      escaped(title));
  for (const std::string& picture : pictures) out += picture;
  return out + "</body></html>\n";
}

}  // namespace weft
