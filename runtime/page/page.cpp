#include "runtime/page/page.h"

#include <optional>
#include <string_view>

#include "runtime/page/parts.h"
#include "runtime/plan/timeline.h"

namespace dc::runtime::page {
namespace {

using base::Result;
using base::Status;

// Neither a tag nor a comment begins inside a script without '<'.
std::string inside_script(const std::string& json) {
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

void fill(std::string& page, std::string_view place, std::string_view content) {
  const size_t at = page.find(place);
  DC_CHECK(at != std::string::npos);
  page.replace(at, place.size(), content);
}

}  // namespace

Result<std::string> timeline_page(const plan::Loaded& loaded, const exec::TraceFile* trace) {
  if (!plan::has_timeline(loaded.plan)) {
    return Status(base::ErrorKind::Mismatch, "DC6632",
                  "the plan does not say when its instructions are expected to run: an older dcc "
                  "wrote it; compile the model again");
  }
  std::optional<ChosenStep> real;
  if (trace) {
    DC_ASSIGN_OR_RETURN(real, choose_step(*trace));
  }
  const std::string json = timeline_json(loaded, trace, real ? &*real : nullptr);
  std::string page(kPageHtml);
  fill(page, "{{style}}", kPageStyle);
  fill(page, "{{script}}", kPageScript);
  fill(page, "{{data}}", inside_script(json));  // last: it is by far the largest
  return page;
}

}  // namespace dc::runtime::page
