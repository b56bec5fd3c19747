// The attributes of an attention op, and the order of an AttentionForm's operands among the
// instance's values. Shared by attention.cc and context_attention.cc.

#pragma once

#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/attention/attention.h"
#include "models/program/binder.h"
#include "models/program/ops/ops.h"

namespace trainyard::ops {

// An AttentionForm without its values. The values are the instance's last inputs: sinks, then the
// begins and ends of documents, then the numbers of samples for dropout, as far as they exist.
struct AttentionTraits {
  AttentionTraits(const Recorder& recorder, const Heads& heads, const AttentionForm& form)
      : mask(form.mask),
        soft_cap(form.soft_cap),
        scale(form.scale),
        sinks(form.sinks.valid()),
        begins(form.documents.begins.valid()),
        ends(form.documents.ends.valid()) {
    if (form.dropout == 0 || !recorder.program().training) return;
    const Mesh& mesh = recorder.mesh();
    const SequencePart part = recorder.part();
    dropout.place = DropoutAt(recorder, form.dropout, "attention weights");
    dropout.first_head = mesh.coordinate(kTensorAxes) * heads.heads;
    dropout.heads = mesh.size(kTensorAxes) * heads.heads;
    dropout.sequence = part.rows * part.ranks;
  }

  bool documents() const { return begins || ends; }
  bool drops() const { return dropout.heads > 0; }
  // How many values a form has (ValuesOf).
  size_t num_values() const {
    return size_t(sinks) + size_t(begins) + size_t(ends) + size_t(drops());
  }
  // Whether IsPlain holds for the calls.
  bool IsPlain() const { return soft_cap == 0 && !documents() && !drops(); }
  AttentionDims DimsOf(const Heads& heads) const {
    return {.sequence = heads.sequence,
            .heads = heads.heads,
            .kv_heads = heads.kv_heads,
            .head_dim = heads.head_dim,
            .value_dim = heads.value_dim(),
            .scale = scale.value_or(1 / std::sqrt(double(heads.head_dim))),
            .soft_cap = soft_cap,
            .mask = mask};
  }
  // The attributes that differ from the default, each with a space before it.
  std::string ToString() const {
    std::string text = mask.causal ? "" : " full";
    if (mask.window > 0) absl::StrAppend(&text, " window=", mask.window);
    if (soft_cap > 0) absl::StrAppend(&text, " soft_cap=", soft_cap);
    if (scale.has_value()) absl::StrAppend(&text, " scale=", *scale);
    if (drops()) absl::StrAppend(&text, " dropout=", dropout.place.probability);
    return text;
  }

  AttentionMask mask;
  double soft_cap;
  std::optional<double> scale;
  bool sinks, begins, ends;
  AttentionDropout dropout = {};  // Without heads: none.
};

// The existing values of a form, in the order of the instance's inputs.
inline std::vector<Value> ValuesOf(Recorder& recorder, const AttentionForm& form,
                                   const AttentionTraits& traits) {
  std::vector<Value> values;
  for (const Value value : {form.sinks, form.documents.begins, form.documents.ends}) {
    if (value.valid()) values.push_back(value);
  }
  if (traits.drops()) values.push_back(recorder.Read(kSampleNumbers));
  return values;
}

// The tensors of these values. Tensors of values that do not exist have no data.
struct FormTensors {
  FormTensors(const Binder& binder, const AttentionTraits& traits, std::span<const Value> values) {
    auto next = values.begin();
    if (traits.sinks) sinks = binder.tensor(*next++);
    if (traits.begins) begins = binder.tensor(*next++);
    if (traits.ends) ends = binder.tensor(*next++);
    if (traits.drops()) samples = binder.tensor(*next++);
  }
  ConstTensor sinks, begins, ends, samples;
};

// The query, key and value heads of a packed projection.
template <typename View>
struct PackedViews {
  template <typename AnyTensor>
  PackedViews(const AnyTensor& packed, const Heads& heads)
      : q(packed, 0, heads.query_columns()),
        k(packed, heads.query_columns(), heads.key_columns()),
        v(packed, heads.query_columns() + heads.key_columns(), heads.value_columns()) {}
  View q, k, v;
};

// Counts the FLOPs for one pair of a query and a key. `keys` is the number of products whose sums
// or results have the width of query and key heads, and `values` the number of those with the width
// of value heads.
struct ProductCounts {
  int keys;
  int values;
  double FlopsPerPair(const Heads& heads) const {
    return 2 * double(heads.heads) * double(keys * heads.head_dim + values * heads.value_dim());
  }
};

}  // namespace trainyard::ops
