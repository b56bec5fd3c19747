#include "tests/testing/cudnn_emulation/graph_meaning.h"

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "common/check.h"
#include "kernels/cuda/attention/cudnn_attention_graph.h"
#include "kernels/device/dtype.h"

// The frontend looks for cuDNN's functions in the program. Graphs that are only described call none
// but this, which says that the library is as new as its header.
void* cudnn_frontend::cudnn_dlhandle = nullptr;
size_t cudnnGetVersion() { return CUDNN_VERSION; }

namespace cudnn_emulation {
namespace {

using trainyard::bf16;
using Json = nlohmann::json;

// A graph whose one node can be read.
class ReadGraph : public cudnn_frontend::graph::Graph {
 public:
  Json Node() const {
    CHECK(sub_nodes.size() == 1) << sub_nodes.size() << " nodes";
    Json node;
    sub_nodes.front()->serialize(node);
    return node;
  }
  // cuDNN gives this dtype to tensors that have none of their own.
  Json IoType() const { return context.get_io_data_type(); }
  Json ComputeType() const { return context.get_compute_data_type(); }
};

// A tensor of four dimensions: sequences, heads, rows and columns.
class View {
 public:
  View(const Json& of, const Json& io_type, void* data) : data_(data) {
    const Json type = of.at("data_type").is_null() ? io_type : of.at("data_type");
    CHECK(type == "BFLOAT16" || type == "FLOAT") << "dtype " << type;
    CHECK(!of.at("is_virtual").get<bool>() && !of.at("is_pass_by_value").get<bool>()) << of;
    CHECK(!of.contains("ragged_offset_uid")) << of;
    f32_ = type == "FLOAT";
    dim_ = of.at("dim").get<std::vector<int64_t>>();
    stride_ = of.at("stride").get<std::vector<int64_t>>();
    CHECK(dim_.size() == 4 && stride_.size() == 4) << of;
  }
  int64_t dim(int axis) const { return dim_[size_t(axis)]; }
  bool f32() const { return f32_; }

  // The rows of one head of one sequence, one after another.
  std::vector<double> Rows(int64_t b, int64_t h) const {
    std::vector<double> rows;
    rows.reserve(size_t(dim(2) * dim(3)));
    for (int64_t i = 0; i < dim(2); ++i) {
      for (int64_t c = 0; c < dim(3); ++c) {
        const int64_t at = Offset(b, h, i, c);
        rows.push_back(f32_ ? static_cast<const float*>(data_)[at]
                            : float(static_cast<const bf16*>(data_)[at]));
      }
    }
    return rows;
  }
  void SetRows(int64_t b, int64_t h, const std::vector<double>& rows) const {
    CHECK(int64_t(rows.size()) == dim(2) * dim(3));
    for (int64_t n = 0; n < int64_t(rows.size()); ++n) {
      const int64_t at = Offset(b, h, n / dim(3), n % dim(3));
      if (f32_) {
        static_cast<float*>(data_)[at] = float(rows[size_t(n)]);
      } else {
        static_cast<bf16*>(data_)[at] = bf16(float(rows[size_t(n)]));
      }
    }
  }

 private:
  int64_t Offset(int64_t b, int64_t h, int64_t i, int64_t c) const {
    return b * stride_[0] + h * stride_[1] + i * stride_[2] + c * stride_[3];
  }

  std::vector<int64_t> dim_, stride_;
  bool f32_ = false;
  void* data_;
};

// The keys that a query sees, counted from the first query and the first key, as the frontend does
// for a diagonal from the top left (utils/attn_score_modifiers.h):
//   right bound r:  j <= i + r
//   left bound l:   j + l > i
struct Band {
  explicit Band(const Json& node) {
    CHECK(node.at("diagonal_alignment") == "TOP_LEFT") << node.at("diagonal_alignment");
    const Json &left_bound = node.at("left_bound"), &right_bound = node.at("right_bound");
    if (!left_bound.is_null()) left = left_bound.get<int64_t>();
    if (!right_bound.is_null()) right = right_bound.get<int64_t>();
  }
  bool Sees(int64_t i, int64_t j) const { return j <= i + right && j + left > i; }

  static constexpr int64_t kNone = int64_t{1} << 40;
  int64_t left = kNone, right = kNone;
};

double Dot(const double* x, const double* y, int64_t count) {
  double sum = 0;
  for (int64_t c = 0; c < count; ++c) sum += x[c] * y[c];
  return sum;
}
void AddScaled(double* to, double factor, const double* x, int64_t count) {
  for (int64_t c = 0; c < count; ++c) to[c] += factor * x[c];
}

class Node {
 public:
  Node(const ReadGraph& graph, const std::unordered_map<int64_t, void*>& tensors)
      : node_(graph.Node()), io_type_(graph.IoType()), tensors_(tensors) {
    CHECK(graph.ComputeType() == "FLOAT") << graph.ComputeType();
    CHECK(!node_.at("alibi_mask").get<bool>() && !node_.at("padding_mask").get<bool>()) << node_;
    CHECK(node_.at("dropout_probability").is_null()) << node_;
    // Without a scale, cuDNN multiplies by 1.
    const Json& scale = node_.at("attn_scale_value");
    scale_ = scale.is_null() ? 1 : scale.get<float>();
  }
  std::string tag() const { return node_.at("tag"); }
  bool deterministic() const { return node_.value("is_deterministic_algorithm", true); }

  void Forward() const {
    ExpectPorts("inputs", {"Q", "K", "V"});
    ExpectPorts("outputs", {"O", "Stats"});
    CHECK(node_.at("generate_stats").get<bool>() && !node_.at("stats_use_log2").get<bool>());
    const View q = In("Q"), k = In("K"), v = In("V"), out = Out("O"), stats = Out("Stats");
    CHECK(stats.f32()) << "statistics that are not f32";
    const Band band(node_);
    const int64_t d = q.dim(3), e = v.dim(3), keys = k.dim(2);
    ForEachHead(q, k, v, [&](int64_t b, int64_t h, int64_t kv_head) {
      const auto queries = q.Rows(b, h), of_keys = k.Rows(b, kv_head), values = v.Rows(b, kv_head);
      std::vector<double> mixed(size_t(q.dim(2) * e)), lse, scores(size_t(keys), 0);
      for (int64_t i = 0; i < q.dim(2); ++i) {
        double sum = 0;
        for (int64_t j = 0; j < keys; ++j) {
          if (!band.Sees(i, j)) continue;
          scores[size_t(j)] =
              std::exp(scale_ * Dot(&queries[size_t(i * d)], &of_keys[size_t(j * d)], d));
          sum += scores[size_t(j)];
        }
        for (int64_t j = 0; j < keys; ++j) {
          if (!band.Sees(i, j)) continue;
          AddScaled(&mixed[size_t(i * e)], scores[size_t(j)] / sum, &values[size_t(j * e)], e);
        }
        lse.push_back(std::log(sum));
      }
      out.SetRows(b, h, mixed);
      stats.SetRows(b, h, lse);
    });
  }

  void Backward() const {
    ExpectPorts("inputs", {"Q", "K", "V", "O", "dO", "Stats"});
    ExpectPorts("outputs", {"dQ", "dK", "dV"});
    const View q = In("Q"), k = In("K"), v = In("V"), out = In("O"), dout = In("dO");
    const View stats = In("Stats"), dq = Out("dQ"), dk = Out("dK"), dv = Out("dV");
    CHECK(stats.f32()) << "statistics that are not f32";
    const Band band(node_);
    const int64_t d = q.dim(3), e = v.dim(3), keys = k.dim(2), group = q.dim(1) / k.dim(1);
    std::vector<double> of_dk, of_dv;
    ForEachHead(q, k, v, [&](int64_t b, int64_t h, int64_t kv_head) {
      const auto queries = q.Rows(b, h), of_keys = k.Rows(b, kv_head), values = v.Rows(b, kv_head);
      const auto mixed = out.Rows(b, h), of_dout = dout.Rows(b, h), lse = stats.Rows(b, h);
      std::vector<double> of_dq(queries.size(), 0);
      if (h % group == 0) {
        of_dk.assign(of_keys.size(), 0);
        of_dv.assign(values.size(), 0);
      }
      for (int64_t i = 0; i < q.dim(2); ++i) {
        const double* const gradient = &of_dout[size_t(i * e)];
        const double delta = Dot(gradient, &mixed[size_t(i * e)], e);
        for (int64_t j = 0; j < keys; ++j) {
          if (!band.Sees(i, j)) continue;
          const double *const query = &queries[size_t(i * d)], *const key = &of_keys[size_t(j * d)];
          const double p = std::exp(scale_ * Dot(query, key, d) - lse[size_t(i)]);
          const double dt = scale_ * p * (Dot(gradient, &values[size_t(j * e)], e) - delta);
          AddScaled(&of_dq[size_t(i * d)], dt, key, d);
          AddScaled(&of_dk[size_t(j * d)], dt, query, d);
          AddScaled(&of_dv[size_t(j * e)], p, gradient, e);
        }
      }
      dq.SetRows(b, h, of_dq);
      if ((h + 1) % group != 0) return;  // Later heads add to the same keys.
      dk.SetRows(b, kv_head, of_dk);
      dv.SetRows(b, kv_head, of_dv);
    });
  }

 private:
  // Ports come as pairs of a name and a tensor, which is null if the port is not used.
  void ExpectPorts(const char* ports, const std::set<std::string>& wanted) const {
    std::set<std::string> used;
    for (const Json& port : node_.at(ports)) {
      if (!port.at(1).is_null()) used.insert(port.at(0));
    }
    CHECK(used == wanted) << ports << " of " << tag() << ": " << node_.at(ports);
  }
  View In(const char* name) const { return Port("inputs", name); }
  View Out(const char* name) const { return Port("outputs", name); }
  View Port(const char* ports, const std::string& name) const {
    for (const Json& port : node_.at(ports)) {
      if (port.at(0) != name) continue;
      const auto found = tensors_.find(port.at(1).at("uid").get<int64_t>());
      CHECK(found != tensors_.end()) << "no tensor for " << name << ": " << port.at(1);
      return View(port.at(1), io_type_, found->second);
    }
    CHECK(false) << "no port " << name;
    __builtin_unreachable();
  }

  // Query heads share keys and values in order: the first ones have the first key head.
  template <typename Body>
  static void ForEachHead(const View& q, const View& k, const View& v, const Body& body) {
    CHECK(q.dim(0) == k.dim(0) && k.dim(0) == v.dim(0) && q.dim(3) == k.dim(3) &&
          k.dim(1) == v.dim(1) && k.dim(2) == v.dim(2) && q.dim(1) % k.dim(1) == 0)
        << "shapes that do not fit";
    for (int64_t b = 0; b < q.dim(0); ++b) {
      for (int64_t h = 0; h < q.dim(1); ++h) body(b, h, h / (q.dim(1) / k.dim(1)));
    }
  }

  const Json node_, io_type_;
  const std::unordered_map<int64_t, void*>& tensors_;
  double scale_;
};

}  // namespace

void ComputeGraph(const trainyard::CudnnAttentionPlan& plan,
                  const std::unordered_map<int64_t, void*>& tensors) {
  ReadGraph graph;
  trainyard::cuda::DescribeAttention(plan, graph);
  const Node node(graph, tensors);
  CHECK(node.deterministic() == plan.deterministic) << node.tag() << " sums in another order";
  if (plan.pass == trainyard::AttentionPass::kForward) {
    CHECK(node.tag() == "SDPA") << node.tag();
    node.Forward();
  } else {
    CHECK(node.tag() == "SDPA_BWD") << node.tag();
    node.Backward();
  }
}

}  // namespace cudnn_emulation
