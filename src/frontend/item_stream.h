// Cuts a JSON document into items while it streams by: values at chosen paths are handed over one
// at a time, everything else is skipped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/json_events.h"
#include "src/frontend/tape.h"

namespace dc::frontend {

class ItemStream : public base::JsonEvents {
 public:
  // Values at `path` become items with this id. Parts are separated by '/'; "*" is any element of
  // an array or any member of an object.
  void expect(std::string_view path, int id);

  bool null() override;
  bool boolean(bool value) override;
  bool integer(int64_t value) override;
  bool real(double value) override;
  bool string(std::string_view value) override;
  bool key(std::string_view value) override;
  bool begin_object() override;
  bool end_object() override;
  bool begin_array() override;
  bool end_array() override;

 protected:
  // `key` is the last member name on the way to the item. Returns false with `problem` set to stop.
  virtual bool item(int id, std::string_view key, TapeValue value) = 0;

 private:
  struct Step {
    std::string part;
    int id = -1;  // an item ends here
    std::vector<int> next;
  };
  static constexpr int kSkip = -1;
  int descend(std::string_view part) const;
  bool open(TokenKind kind);
  bool close();
  // Puts a scalar on the tape if it is an item or part of one.
  template <typename Put>
  bool scalar(Put put);

  std::vector<Step> steps_ = {Step{}};  // a tree of paths; 0 is the document
  std::vector<int> stack_;              // steps of the open containers outside items
  std::vector<bool> in_object_;         // whether each of them is an object
  std::string key_;
  std::string item_key_;
  int skipped_ = 0;   // open containers inside a skipped value
  int recorded_ = 0;  // open containers inside an item
  int item_id_ = -1;
  Tape tape_;
};

}  // namespace dc::frontend
