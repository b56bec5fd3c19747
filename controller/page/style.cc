#include "controller/page/style.h"

namespace trainyard::controller {

// Colours have the names of their meanings. All digits have the same width, so that columns align.
const absl::string_view kStyle = R"css(:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #fff; --line: #e3e6ea; --text: #1c2128; --soft: #66707c;
  --link: #1b5fc1; --field: #fff;
  --good: #1a7f4b; --bad: #c0362c; --warns: #a15c00; --moves: #1b5fc1; --waits: #6d5bb0;
  --c0: #1b5fc1; --c1: #d9730d;
  --p0: #8d99a6; --p1: #2f74d0; --p2: #1d4f9c; --p3: #d9730d; --p4: #2b9a66; --p5: #c65b9b;
  --p6: #8a6fd1; --p7: #b59a1c; --p8: #1f9aa6;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12151a; --card: #1a1e25; --line: #2b313a; --text: #e2e6eb; --soft: #929daa;
    --link: #7fb0ff; --field: #12151a;
    --good: #52c48a; --bad: #f07c72; --warns: #e2a14a; --moves: #7fb0ff; --waits: #b3a4ee;
    --c0: #6ea6fa; --c1: #f0a050;
    --p0: #7d8894; --p1: #5b98ee; --p2: #3468b8; --p3: #e8944a; --p4: #4db987; --p5: #d77fb2;
    --p6: #a58ce6; --p7: #d3bd4f; --p8: #4cbcc6;
  }
}
*, ::before { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums;
}
a { color: var(--link); text-decoration: none; }
a:hover { text-decoration: underline; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
code, pre { font: 13px/1.55 ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; }
header { background: var(--card); border-bottom: 1px solid var(--line); }
nav, main, footer { max-width: 1180px; margin: 0 auto; padding: 0 20px; }
nav { display: flex; align-items: center; gap: 20px; min-height: 52px; }
nav a { color: var(--soft); }
nav a.home { color: var(--text); font-weight: 650; letter-spacing: -.01em; }
nav a.here { color: var(--text); box-shadow: 0 2px var(--link); }
nav form { margin-left: auto; display: flex; align-items: center; gap: 12px; }
main { padding-top: 24px; padding-bottom: 32px; }
footer { color: var(--soft); font-size: 13px; padding-bottom: 32px; }
h1 { font-size: 24px; line-height: 1.25; letter-spacing: -.015em; margin: 0; }
h2 { font-size: 16px; margin: 0 0 10px; }
.top { display: flex; align-items: baseline; flex-wrap: wrap; gap: 4px 12px; }
.top + p { margin-top: 4px; }
.note, .who, dt, th { color: var(--soft); }
.note, .who { font-size: 13px; }
p.note { margin: 0 0 12px; }
.top p.note { margin: 0; }
section, .charts, .filters, .facts { margin-top: 20px; }
section, .chart, .facts, table.jobs, .empty, .login form {
  background: var(--card); border: 1px solid var(--line); border-radius: 8px;
}
section { padding: 16px 18px; }
.empty { padding: 28px 18px; text-align: center; color: var(--soft); }
section .empty { border: 0; padding: 12px 0; margin: 0; }
.wrong, .reason { border-left: 3px solid var(--bad); padding: 6px 12px; background: var(--card); }
.reason { border-color: var(--line); overflow-wrap: anywhere; }
.sign {
  display: inline-flex; align-items: center; gap: 6px; font-size: 13px; font-weight: 550;
  white-space: nowrap; color: var(--soft);
}
.sign::before {
  content: ""; width: 8px; height: 8px; border-radius: 50%; background: currentColor;
}
.sign.good { color: var(--good); } .sign.bad { color: var(--bad); }
.sign.warns { color: var(--warns); } .sign.moves { color: var(--moves); }
.sign.waits { color: var(--waits); }
.sign.waits::before, .sign.over::before { background: none; border: 2px solid currentColor; }
button, select, input {
  font: inherit; color: inherit; background: var(--field); border: 1px solid var(--line);
  border-radius: 6px; padding: 0 10px; min-width: 0; height: 34px;
}
button { cursor: pointer; }
button:hover { border-color: var(--soft); }
nav button { font-size: 13px; height: 28px; }
.filters { display: flex; flex-wrap: wrap; gap: 10px 14px; align-items: end; margin-bottom: 16px; }
.filters label { display: grid; gap: 2px; font-size: 13px; color: var(--soft); }
.filters input, .filters select { color: var(--text); }
section .filters { margin: 0 0 10px; align-items: center; }
section .filters label { display: flex; align-items: center; gap: 8px; }
.scroll { overflow-x: auto; }
.scroll.tall { max-height: 340px; overflow-y: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: 7px 12px; vertical-align: baseline; }
th { font-size: 12.5px; font-weight: 500; white-space: nowrap; }
td { border-top: 1px solid var(--line); overflow-wrap: anywhere; unicode-bidi: isolate; }
section th:first-child, section td:first-child { padding-left: 0; }
section td { font-size: 14px; }
.tall thead th { position: sticky; top: 0; background: var(--card); }
.n { text-align: right; white-space: nowrap; }
td time { white-space: nowrap; }
table.jobs { border-collapse: separate; border-spacing: 0; }
table.jobs th, table.jobs td { vertical-align: middle; }
.jobs .name { font-weight: 550; }
.jobs .wide { white-space: nowrap; }
progress {
  appearance: none; width: 110px; height: 6px; border: 0; border-radius: 3px; overflow: hidden;
  background: var(--line); vertical-align: middle;
}
progress::-webkit-progress-bar { background: var(--line); }
progress::-webkit-progress-value { background: var(--c0); border-radius: 3px; }
progress::-moz-progress-bar { background: var(--c0); border-radius: 3px; }
main > progress { display: block; width: 100%; margin-top: 14px; }
.pages { display: flex; gap: 18px; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(120px, 1fr)); }
.facts { padding: 4px 6px; }
.facts div { padding: 10px 12px; }
dt { font-size: 13px; }
dd { margin: 0; font-size: 19px; line-height: 1.35; letter-spacing: -.01em; white-space: nowrap; }
.charts { display: grid; grid-template-columns: 1fr 1fr; gap: 20px; }
.chart { margin: 0; padding: 14px 18px; min-width: 0; }
figcaption { display: flex; flex-wrap: wrap; gap: 2px 14px; align-items: baseline; }
figcaption .note:last-child { margin-left: auto; }
.key { font-size: 13px; color: var(--soft); }
.key::before {
  content: ""; display: inline-block; width: 14px; height: 3px; border-radius: 2px;
  margin-right: 6px; vertical-align: middle; background: var(--c0);
}
.key.k1::before { background: var(--c1); width: 8px; height: 8px; border-radius: 50%; }
.plot { display: grid; grid-template-columns: auto 1fr; gap: 6px 10px; margin-top: 14px; }
.plot svg { width: 100%; height: 200px; display: block; overflow: visible; }
.ys { display: flex; flex-direction: column; justify-content: space-between; text-align: right; }
.ys span { height: 0; line-height: 0; }
.ys, .xs { font-size: 12px; color: var(--soft); }
.xs { grid-column: 2; display: flex; justify-content: space-between; }
path { fill: none; vector-effect: non-scaling-stroke; stroke-linejoin: round; }
.grid { stroke: var(--line); stroke-width: 1; }
.curve { stroke-width: 1.6; }
.curve.thin { stroke-width: 1; opacity: .55; }
.dots { stroke-width: 6; stroke-linecap: round; }
.c0 { stroke: var(--c0); } .c1 { stroke: var(--c1); }
.bar { display: block; width: 100%; height: 18px; border-radius: 5px; }
.p0 { fill: var(--p0); } .p1 { fill: var(--p1); } .p2 { fill: var(--p2); }
.p3 { fill: var(--p3); } .p4 { fill: var(--p4); } .p5 { fill: var(--p5); } .p6 { fill: var(--p6); }
.p7 { fill: var(--p7); } .p8 { fill: var(--p8); }
.keys {
  display: flex; flex-wrap: wrap; gap: 4px 20px; list-style: none; margin: 10px 0 0; padding: 0;
  font-size: 14px;
}
.keys b { font-weight: 550; }
.swatch { width: 10px; height: 10px; border-radius: 2px; margin-right: 7px; }
pre { margin: 0; overflow: auto; max-height: 420px; tab-size: 4; unicode-bidi: isolate; }
.log { white-space: pre-wrap; overflow-wrap: anywhere; }
.log .note { font-size: inherit; }
.worker h2 { margin: 0; }
.worker table { table-layout: fixed; }
.worker th:nth-child(1), .worker th:nth-child(4) { width: 11%; }
.worker th:nth-child(2), .worker th:nth-child(5) { width: 24%; }
.login { max-width: 460px; padding-top: 12vh; }
.login form { display: grid; gap: 8px; padding: 20px; margin: 16px 0; }
.login button { background: var(--link); border-color: var(--link); color: var(--card); }
@media (max-width: 860px) { .charts { grid-template-columns: 1fr; } }
@media (max-width: 700px) {
  nav, main, footer { padding-left: 14px; padding-right: 14px; }
  nav { gap: 14px; }
  .who { display: none; }
  section, .chart { padding: 14px; }
  .facts { grid-template-columns: 1fr 1fr; }
  .filters label { flex: 1 1 40%; }
  .cards thead { display: none; }
  .cards tr { display: grid; grid-template-columns: 1fr 1fr; gap: 2px 14px; padding: 10px 14px; }
  .cards tr + tr { border-top: 1px solid var(--line); }
  .cards td { border: 0; padding: 0; text-align: left; order: 3; }
  .cards td:first-child, .jobs .when { order: 0; }
  .jobs td:nth-child(2) { order: 1; }
  .cards .wide { order: 2; }
  .jobs .when { text-align: right; font-size: 13px; color: var(--soft); }
  .cards td[data-is]::before { content: attr(data-is) " "; color: var(--soft); font-size: 13px; }
  .cards .wide, .jobs td:nth-child(2) { grid-column: 1 / -1; }
  .cards .wide { display: flex; align-items: center; gap: 10px; }
  .cards .wide progress { flex: 1; }
  table.cards, .cards tbody { display: block; }
  section .cards tr { padding: 10px 0; }
}
)css";

}  // namespace trainyard::controller
