// What `dcc frontier` prints.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/driver/frontier.h"

namespace dc::cli {

// One row of the table: a budget, its plan, and what the memory since the row before bought.
struct FrontierRow {
  base::Bytes budget, memory;  // memory: that the plan takes
  base::Nanos time, bound;     // bound 0: unknown
  base::Nanos saved;           // of the step since the row before; 0 in the first row
  std::string decided;         // how much is recomputed, kept whole, offloaded, in words
  std::string passes;          // the plan's chain
  bool is_new = true;          // false: the plan of the row before
};
// What each further unit of the budget saved since the row before: "5.73 ms per GiB"; "-" if
// nothing.
std::string saving(const FrontierRow& before, const FrontierRow& row);
std::vector<FrontierRow> frontier_rows(const driver::Frontier& frontier);

std::string frontier_table(const std::vector<FrontierRow>& rows);
// "dcc.frontier/1". `too_small`: as Frontier::too_small.
std::string frontier_json(const std::vector<FrontierRow>& rows,
                          const std::optional<base::Bytes>& too_small);
// Where the frontier begins above the budget asked for: what to say of that.
std::string begins_later(base::Bytes too_small, const FrontierRow& first);
// A curve and the table as one HTML page that needs nothing else.
std::string frontier_page(const std::vector<FrontierRow>& rows, const std::string& title);

}  // namespace dc::cli
