#include <algorithm>
#include <cmath>

#include "cli/frontier_report.h"
#include "cli/table_text.h"
#include "src/base/text.h"

namespace dc::cli {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark; --plan: #0a66c2; --bound: #c2410c; --line: #8886; }
@media (prefers-color-scheme: dark) { :root { --plan: #6cb6ff; --bound: #fb923c; } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 66rem; padding: 0 1rem; }
svg { width: 100%; height: auto; font-size: 12px; fill: currentColor; }
.plan { stroke: var(--plan); fill: none; stroke-width: 2; } circle { fill: var(--plan); }
.bound { stroke: var(--bound); fill: none; stroke-width: 2; stroke-dasharray: 6 4; }
.grid { stroke: var(--line); } .y { text-anchor: end; } .x { text-anchor: middle; }
table { border-collapse: collapse; width: 100%; } th, td { padding: .3rem .6rem; text-align: right;
border-bottom: 1px solid var(--line); white-space: nowrap; } th:last-child, td:last-child {
text-align: left; white-space: normal; } code { font-size: 12px; overflow-wrap: anywhere; }
b.p { color: var(--plan); } b.b { color: var(--bound); }
)";

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string place(double pixels) { return fixed(pixels, 1); }

// Memory to the right, time upwards from nothing: a curve that hardly falls shall look so.
class Chart {
 public:
  explicit Chart(const std::vector<FrontierRow>& rows) : rows_(rows) {
    least_ = rows.front().budget.v;
    most_ = std::max(rows.back().budget.v, least_ + 1);
    for (const FrontierRow& row : rows) longest_ = std::max(longest_, row.time.v);
  }

  std::string svg() const {
    std::string text =
        "<svg viewBox=\"0 0 900 380\" role=\"img\" aria-label=\"Step time over "
        "memory\">\n";
    for (int i = 0; i <= 4; ++i) text += grid_line(i);
    for (const FrontierRow& row : rows_) {
      text += "<text class=\"x\" x=\"" + place(x(row)) + "\" y=\"358\">" +
              base::format_bytes(row.budget.v) + "</text>\n";
    }
    std::string plan, bound;
    for (const FrontierRow& row : rows_) {
      if (!plan.empty()) plan += "H" + place(x(row));  // a plan serves until the next
      plan += (plan.empty() ? "M" + place(x(row)) + "," : "V") + place(y(row.time.v));
      if (row.bound.v == 0) continue;
      // A bound serves every smaller budget too, so it falls right after the one before.
      bound += (bound.empty() ? "M" + place(x(row)) + "," : "V") + place(y(row.bound.v)) + "H" +
               place(x(row));
    }
    if (!bound.empty()) text += "<path class=\"bound\" d=\"" + bound + "\"/>\n";
    text += "<path class=\"plan\" d=\"" + plan + "\"/>\n";
    for (const FrontierRow& row : rows_) {
      text += "<circle cx=\"" + place(x(row)) + "\" cy=\"" + place(y(row.time.v)) +
              "\" r=\"4\"><title>" + base::format_bytes(row.budget.v) + ": " +
              base::format_duration(row.time.v) + "; " + escaped(row.decided) +
              "</title></circle>\n";
    }
    return text + "</svg>\n";
  }

 private:
  // Equal ratios of memory have equal widths, as the budgets are chosen.
  double x(const FrontierRow& row) const {
    const double all = std::log(static_cast<double>(most_) / static_cast<double>(least_));
    const double part =
        std::log(static_cast<double>(row.budget.v) / static_cast<double>(least_)) / all;
    return 110 + part * 740;
  }
  double y(int64_t ns) const {
    return 330 - static_cast<double>(ns) / static_cast<double>(longest_) * 300;
  }

  std::string grid_line(int quarter) const {
    const int64_t ns = longest_ / 4 * quarter;
    const std::string at = place(y(ns));
    return "<line class=\"grid\" x1=\"100\" x2=\"870\" y1=\"" + at + "\" y2=\"" + at +
           "\"/><text class=\"y\" x=\"92\" y=\"" + place(y(ns) + 4) + "\">" +
           base::format_duration(ns) + "</text>\n";
  }

  const std::vector<FrontierRow>& rows_;
  int64_t least_ = 0, most_ = 0, longest_ = 1;
};

std::string table_row(const FrontierRow& row, const std::string& saved) {
  const std::string bound = row.bound.v > 0 ? base::format_duration(row.bound.v) : "unknown";
  return "<tr><td>" + base::format_bytes(row.budget.v) + "</td><td>" +
         base::format_bytes(row.memory.v) + "</td><td>" + base::format_duration(row.time.v) +
         "</td><td>" + bound + "</td><td>" + saved + "</td><td>" +
         (row.is_new ? escaped(row.decided) + "<br><code>" + escaped(row.passes) + "</code>"
                     : "the plan above") +
         "</td></tr>\n";
}

}  // namespace

std::string frontier_page(const std::vector<FrontierRow>& rows, const std::string& title) {
  std::string text =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n<title>dcc frontier</title>\n<style>" +
      std::string(kStyle) + "</style>\n</head>\n<body>\n<h1>" + escaped(title) +
      "</h1>\n<p>Time of a step over the memory of a rank: <b class=\"p\">the best plan found</b> "
      "and <b class=\"b\">the bound that no plan is below</b>.</p>\n";
  text += Chart(rows).svg();
  text +=
      "<table>\n<tr><th>budget</th><th>taken</th><th>step</th><th>bound</th><th>time saved"
      "</th><th>decided</th></tr>\n";
  for (size_t i = 0; i < rows.size(); ++i)
    text += table_row(rows[i], i > 0 ? saving(rows[i - 1], rows[i]) : "-");
  return text + "</table>\n</body>\n</html>\n";
}

}  // namespace dc::cli
