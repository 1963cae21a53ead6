// The page of the gateway. Text from elsewhere (models, sessions, tools, messages) enters the document as text
// nodes only: `make` has no way to take HTML.

const PAGE_OF_REQUESTS = 30;
const MOST_ERRORS = 60;
const MOST_SEEN = 500;
const MOST_CONVERSATIONS = 200;
const MOST_CARDS = 12;
const RETRY = 2000;

const BLOCKS = {
  system: "system prompt",
  tools: "tools",
  summary: "digest",
  memory: "memory",
  project: "project",
  recalled: "recalled",
  turns: "messages",
  free: "free",
};
const SCOPES = {
  day: "all calls today",
  "key-day": "today",
  "key-month": "this month",
  "key-minute": "this minute",
  key: "in all",
  session: "conversation",
};
const KINDS = {
  overflow: "request too long",
  invalid: "invalid request",
  key: "wrong or missing key",
  forbidden: "not allowed",
  model: "unknown model",
  path: "unknown address",
  method: "wrong method",
  slow: "request too slow",
  "too large": "request too large",
  head: "request head too large",
  rate: "too many requests",
  cap: "cap reached",
  busy: "gateway busy",
  "set-up": "not set up",
  store: "store not available",
  upstream: "upstream failed",
  late: "upstream too late",
};
const GONE = 499;

const seen = {
  conversations: new Map(),
  requests: [],
  refusals: [],
  totals: null,
  money: null,
  running: { number: 0, shown: [] },
  reasons: {},
  keepsTexts: false,
  number: 0,
};
const shown = { only: null, allCards: false, unitChosen: false, requests: PAGE_OF_REQUESTS };
const cards = new Map();
const rows = new Map();
let stream = null;
let retry = null;

// Figures

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

const tokens = (number) => `${whole.format(number)} ${number === 1 ? "token" : "tokens"}`;
const plural = (number, noun) => `${whole.format(number)} ${noun}${number === 1 ? "" : "s"}`;
const percent = (share) => `${Math.round(share * 100)} %`;
const sum = (numbers) => numbers.reduce((one, other) => one + (other ?? 0), 0);

function dollars(amount) {
  if (amount === null || amount === undefined) return "no price";
  if (amount > 0 && amount < 0.0001) return "<$0.0001";
  return `$${amount.toFixed(amount < 1 ? 4 : 2)}`;
}

function duration(seconds) {
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${seconds.toFixed(1)} s`;
}

// The document

const find = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function draw(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function time(at) {
  const moment = new Date(at * 1000);
  return make(
    "time",
    { datetime: moment.toISOString(), title: moment.toLocaleString() },
    clock.format(moment),
  );
}

// A window as a bar: one part for each block that has tokens.

function blocksOf(request) {
  const room = request.limit ?? request.tokens;
  const filled = Object.entries(request.blocks).filter(([, number]) => number > 0);
  return { room: Math.max(room, request.tokens, 1), filled };
}

function gauge(request, thin = false) {
  const bar = make("div", { class: thin ? "gauge thin" : "gauge", role: "img" });
  setGauge(bar, request);
  return bar;
}

function setGauge(bar, request) {
  const { room, filled } = blocksOf(request);
  const named = filled.map(([name, number]) => `${BLOCKS[name] ?? name} ${whole.format(number)}`);
  const free =
    request.limit === null ? "unknown limit" : `free ${whole.format(Math.max(0, room - request.tokens))}`;
  bar.setAttribute("aria-label", `${tokens(request.tokens)}: ${[...named, free].join(", ")}`);
  for (const [name, number] of filled) {
    const part = bar.querySelector(`.${CSS.escape(name)}`) ?? make("span", { class: name });
    part.title = `${BLOCKS[name] ?? name}: ${tokens(number)}`;
    part.style.width = `${(100 * number) / room}%`;
    if (part.parentNode !== bar) bar.append(part);
  }
  for (const part of [...bar.children]) {
    if (!filled.some(([name]) => part.classList.contains(name))) part.remove();
  }
}

function legend() {
  const used = new Set(["system", "tools", "summary", "recalled", "turns", "free"]);
  find("legend").replaceChildren(
    ...Object.entries(BLOCKS)
      .filter(([name]) => used.has(name))
      .map(([name, label]) => make("li", {}, make("span", { class: `swatch ${name}` }), label)),
  );
}

// Tiles

function tile(title, figure, more) {
  return make(
    "div",
    {},
    make("dt", {}, title),
    make("dd", { class: "figure" }, figure),
    make("dd", { class: "more" }, more),
  );
}

function showTiles() {
  const totals = seen.totals;
  const removed = totals.given_tokens - totals.sent_tokens;
  const lines = seen.money?.by_model ?? [];
  const today = lines.map((line) => line.dollars.at(-1)).filter((amount) => amount !== null);
  const calls = sum(lines.map((line) => line.calls.at(-1)));
  const share = totals.given_tokens ? removed / totals.given_tokens : 0;
  find("tiles").replaceChildren(
    tile("Requests", whole.format(totals.requests), `${whole.format(totals.refused)} refused, ${whole.format(seen.running.number)} under way`),
    tile("Sent", short.format(totals.sent_tokens), "tokens"),
    tile("Kept out", short.format(removed), `tokens, ${percent(share)} of what clients sent`),
    tile("Trims", whole.format(totals.trims), `${plural(totals.recalled, "passage")} recalled`),
    tile(
      "Prefix reuse",
      totals.compared_tokens ? percent(totals.reused_tokens / totals.compared_tokens) : "–",
      "of each request, for prompt caches",
    ),
    tile("Spent today", today.length ? dollars(sum(today)) : "–", `${plural(calls, "call")}, UTC day`),
  );
}

// Conversations

const LONGEST_NAME = 24;

function nameOf(conversation) {
  const program = conversation.client.split(" ")[0] || "unknown client";
  const name = conversation.session || conversation.id;
  // The beginning of a long id tells it from others; a name that a person chose is shown as it is.
  return `${program} · ${name.length > LONGEST_NAME ? name.slice(0, 8) : name}`;
}

function keyName(id) {
  return id ? (seen.money?.key_names[id] ?? id) : "no key";
}

function curve(conversation) {
  const { sizes, newest } = conversation;
  const most = Math.max(newest.limit ?? 0, ...sizes, 1);
  const step = 100 / Math.max(1, sizes.length - 1);
  const height = (size) => (30 - (28 * size) / most).toFixed(2);
  const points = sizes.map((size, place) => `${(place * step).toFixed(2)},${height(size)}`);
  const drawing = draw("svg", { viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true" });
  if (newest.limit)
    drawing.append(
      draw("line", { class: "limit", x1: 0, x2: 100, y1: height(newest.limit), y2: height(newest.limit) }),
    );
  if (points.length > 1) {
    drawing.append(draw("polygon", { class: "area", points: `0,30 ${points.join(" ")} 100,30` }));
    drawing.append(draw("polyline", { class: "curve", points: points.join(" ") }));
  }
  return drawing;
}

function fact(label, value) {
  return make("div", {}, make("dt", {}, label), make("dd", {}, value));
}

function makeCard(conversation) {
  const card = make("li", { class: "card" });
  const button = make("button", { type: "button", class: "quiet" }, "Requests");
  button.addEventListener("click", () => {
    shown.only = conversation.id;
    shown.requests = PAGE_OF_REQUESTS;
    showRunning();
    showRequests();
    find("requests-title").scrollIntoView({ block: "start" });
    find("unfilter").focus();
  });
  const parts = {
    title: make("h3"),
    owner: make("p", { class: "owner" }),
    when: make("span", { class: "when" }),
    size: make("div", { class: "size" }),
    bar: gauge(conversation.newest),
    curve: make("div"),
    facts: make("dl", { class: "facts" }),
  };
  card.append(
    make("header", {}, parts.title, parts.when),
    make("div", { class: "owners" }, parts.owner, button),
    parts.size,
    parts.bar,
    parts.curve,
    parts.facts,
  );
  return { card, button, parts };
}

function showCard(conversation) {
  let made = cards.get(conversation.id);
  if (!made) cards.set(conversation.id, (made = makeCard(conversation)));
  const { parts, button } = made;
  const newest = conversation.newest;
  parts.title.textContent = nameOf(conversation);
  parts.title.title = [conversation.client, conversation.session, conversation.id].filter(Boolean).join("\n");
  parts.owner.textContent = `${newest.model}, ${keyName(newest.key)}`;
  parts.when.replaceChildren(time(newest.at));
  const limit = newest.limit === null ? "of an unknown limit" : `of ${tokens(newest.limit)}`;
  parts.size.replaceChildren(
    make("b", {}, whole.format(newest.tokens)),
    limit,
    newest.limit ? make("span", { class: "percent" }, `${percent(newest.tokens / newest.limit)} full`) : "",
  );
  setGauge(parts.bar, newest);
  parts.curve.replaceChildren(curve(conversation));
  parts.facts.replaceChildren(
    fact("requests", whole.format(conversation.requests)),
    fact("trims", whole.format(conversation.trims)),
    fact("kept out", short.format(Math.max(0, newest.before - newest.tokens))),
    fact("reuse", newest.reuse === null ? "–" : percent(newest.reuse)),
    fact("cost", dollars(conversation.cost)),
  );
  button.setAttribute("aria-label", `Show the requests of ${nameOf(conversation)}`);
  return made.card;
}

function showConversations() {
  const list = find("conversations");
  const all = [...seen.conversations.values()].sort((one, other) => other.newest.number - one.newest.number);
  const wanted = shown.allCards ? all : all.slice(0, MOST_CARDS);
  const known = new Set(all.map((each) => each.id));
  for (const id of cards.keys()) if (!known.has(id)) cards.delete(id);
  // Cards stay where they are as long as the same ones are shown, so that nothing jumps while it is read.
  const elements = new Set(wanted.map(showCard));
  const same =
    list.children.length === elements.size && [...list.children].every((each) => elements.has(each));
  if (!same) list.replaceChildren(...elements);
  find("conversations-empty").textContent = all.length
    ? ""
    : `No conversation yet. Point a client at ${location.origin}/v1 (OpenAI) or ${location.origin} (Anthropic).`;
  const more = find("conversations-more");
  more.hidden = all.length <= MOST_CARDS;
  more.textContent = shown.allCards ? "Show fewer" : `Show all ${whole.format(all.length)}`;
}

// Requests

const isFailed = (request) => request.status >= 400 || request.is_broken;

function isWanted(request) {
  if (shown.only && request.conversation !== shown.only) return false;
  const filter = find("filter").value;
  if (filter === "changed") return request.changes.length > 0;
  return filter === "errors" ? isFailed(request) : true;
}

function failure(request) {
  if (request.status === GONE) return "client went away";
  if (request.status >= 400) return `upstream answered ${request.status}${request.code ? `, ${request.code}` : ""}`;
  return "stream broken off";
}

function badges(request) {
  const kinds = new Map();
  for (const change of request.changes) kinds.set(change.kind, (kinds.get(change.kind) ?? 0) + 1);
  const found = [...kinds].map(([kind, number]) =>
    make("span", { class: "badge cut" }, `${labelOf(kind)} × ${whole.format(number)}`),
  );
  if (request.more_changes)
    found.push(make("span", { class: "badge cut" }, `${whole.format(request.more_changes)} more`));
  if (request.recalled)
    found.push(make("span", { class: "badge back" }, `recalled ${whole.format(request.recalled)}`));
  if (request.is_lowered) found.push(make("span", { class: "badge" }, "answer limit lowered"));
  if (request.unread) found.push(make("span", { class: "badge" }, "unknown form, not changed"));
  if (request.is_estimated) found.push(make("span", { class: "badge" }, "our own count"));
  if (isFailed(request)) found.push(make("span", { class: "badge fail" }, failure(request)));
  return found.length ? make("span", { class: "badges" }, ...found) : null;
}

function figuresOf(request) {
  const isShorter = request.before > request.tokens;
  return make(
    "span",
    { class: "figures" },
    ...(isShorter
      ? [
          make("s", { "aria-label": `${whole.format(request.before)} became` }, whole.format(request.before)),
          " → ",
        ]
      : []),
    tokens(request.tokens),
  );
}

function subject(request) {
  const conversation = seen.conversations.get(request.conversation);
  const name = conversation ? nameOf(conversation) : (request.client ?? "").split(" ")[0];
  return make("span", { class: "what" }, request.model, make("span", {}, ` ${name}`));
}

function makeRow(request) {
  const summary = make(
    "summary",
    {},
    time(request.at),
    subject(request),
    figuresOf(request),
    gauge(request, true),
    badges(request),
  );
  const details = make("details", {}, summary);
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(inside(request));
  });
  return make("li", {}, details);
}

function inside(request) {
  const used =
    request.prompt === null
      ? "nothing booked here"
      : `${tokens(request.prompt)} in, ${tokens(request.completion)} out`;
  const box = make(
    "div",
    { class: "inside" },
    make(
      "p",
      {},
      `${request.api}, ${request.is_streamed ? "streamed" : "not streamed"}, ${duration(request.seconds)}, ${used}, ` +
        `${dollars(request.cost)}, prefix reuse ${request.reuse === null ? "unknown" : percent(request.reuse)}.`,
    ),
  );
  if (request.given) {
    const kept = request.given - request.dropped;
    box.append(
      make(
        "p",
        {},
        `Kept ${whole.format(kept)} of ${plural(request.given, "message")}, ${whole.format(request.truncated)} of them in a ` +
          `shorter form. Recalled ${plural(request.recalled, "message")}.`,
      ),
    );
  }
  if (request.unread) box.append(make("p", {}, `Forwarded unchanged: ${request.unread}`));
  if (request.changes.length) box.append(reasonList(request), changeTable(request));
  if (request.has_texts) box.append(textButton(request, box));
  box.append(make("p", { class: "empty" }, "Request ", make("code", {}, request.id)));
  return box;
}

function reasonOf(kind) {
  return seen.reasons[kind]?.[1] ?? "a pass of your own";
}

function labelOf(kind) {
  return seen.reasons[kind]?.[0] ?? kind;
}

function reasonList(request) {
  const kinds = [...new Set(request.changes.map((change) => change.kind))];
  return make(
    "ul",
    { class: "reasons" },
    ...kinds.map((kind) => make("li", {}, make("b", {}, labelOf(kind)), `: ${reasonOf(kind)}`)),
  );
}

function changeTable(request) {
  const heads = ["Message", "Change", "Before", "After"];
  const numeric = new Set(["Before", "After"]);
  const body = request.changes.map((change) =>
    make(
      "tr",
      {},
      make(
        "td",
        {},
        `#${change.place} ${change.role}`,
        change.tool ? make("span", {}, ` (${change.tool})`) : "",
      ),
      make("td", {}, labelOf(change.kind)),
      make("td", { class: "number" }, whole.format(change.before)),
      make("td", { class: "number" }, whole.format(change.after)),
    ),
  );
  const head = make(
    "tr",
    {},
    ...heads.map((name) => make("th", { scope: "col", class: numeric.has(name) ? "number" : null }, name)),
  );
  const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
  return make(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Changes of this request, in tokens" },
    table,
  );
}

function textButton(request, box) {
  const button = make("button", { type: "button", class: "quiet" }, "Show texts before and after");
  button.addEventListener("click", async () => {
    const answer = await fetch(`/page/texts?request=${request.number}`);
    const texts = answer.ok ? await answer.json() : [];
    const text = (title, words) =>
      make("div", {}, make("h4", {}, title), make("pre", { tabindex: "0", "aria-label": title }, words));
    const made = texts.map((each) =>
      each.after === null
        ? make("div", { class: "texts" }, text(`Message #${each.place}, no longer sent`, each.before))
        : make(
            "div",
            { class: "texts" },
            text(`Message #${each.place} before`, each.before),
            text("After", each.after),
          ),
    );
    button.replaceWith(
      ...(made.length ? made : [make("p", { class: "empty" }, "These texts are no longer kept.")]),
    );
    box.querySelector("pre")?.focus();
  });
  return button;
}

function rowOf(request) {
  if (!rows.has(request.number)) rows.set(request.number, makeRow(request));
  return rows.get(request.number);
}

function showRequests() {
  const wanted = seen.requests.filter(isWanted).reverse();
  find("requests").replaceChildren(...wanted.slice(0, shown.requests).map(rowOf));
  afterRequests(wanted.length);
}

function addRequests(fresh) {
  const list = find("requests");
  const added = fresh.filter(isWanted);
  for (const request of added) list.prepend(rowOf(request));
  shown.requests = Math.max(PAGE_OF_REQUESTS, Math.min(shown.requests, list.children.length));
  while (list.children.length > shown.requests) list.lastChild.remove();
  afterRequests(seen.requests.filter(isWanted).length);
}

function afterRequests(number) {
  const kept = new Set(seen.requests.map((request) => request.number));
  for (const each of rows.keys()) if (!kept.has(each)) rows.delete(each);
  find("requests-empty").hidden = number > 0;
  const hidden = number - find("requests").children.length;
  find("requests-more").hidden = hidden <= 0;
  find("requests-more").textContent = `Show older (${whole.format(hidden)})`;
  const only = shown.only && seen.conversations.get(shown.only);
  find("unfilter").hidden = !only;
  if (only) find("unfilter").textContent = `Only ${nameOf(only)}: show all`;
}

// Requests under way

function showRunning() {
  const isWanted = (each) => !shown.only || each.conversation === shown.only;
  const wanted = find("filter").value === "all" ? seen.running.shown.filter(isWanted) : [];
  const old = new Map([...find("running").children].map((row) => [row.dataset.request, row]));
  find("running").replaceChildren(
    ...wanted.reverse().map((each) => old.get(each.id) ?? makeRunning(each)),
  );
  const hidden = seen.running.number - seen.running.shown.length;
  find("running-more").hidden = hidden <= 0 || find("filter").value !== "all";
  find("running-more").textContent = `${whole.format(hidden)} more under way.`;
  showTimes();
}

function makeRunning(request) {
  const waited = make("span", { class: "waited", "data-at": request.at });
  return make(
    "li",
    { "data-request": request.id },
    waited,
    subject(request),
    figuresOf(request),
    gauge(request, true),
  );
}

function showTimes() {
  for (const each of find("running").querySelectorAll(".waited")) {
    const seconds = Math.max(0, Math.floor(Date.now() / 1000 - each.dataset.at));
    each.textContent = `under way, ${whole.format(seconds)} s`;
  }
}

// Costs

function unit() {
  const select = find("cost-unit");
  if (!shown.unitChosen) {
    const isPriced = seen.money.by_model.some((line) => line.dollars.some((amount) => amount > 0));
    select.value = isPriced ? "dollars" : "tokens";
  }
  return select.value;
}

function lineName(line, by) {
  if (line.is_rest) return "all others";
  return by === "by_key" ? keyName(line.name) : line.name;
}

function amountOf(value, inUnit) {
  return inUnit === "dollars" ? dollars(value) : whole.format(value ?? 0);
}

function lineTotal(line, inUnit) {
  if (inUnit === "tokens") return whole.format(sum(line.tokens));
  const known = line.dollars.filter((amount) => amount !== null);
  if (!known.length) return "no price";
  return line.unpriced
    ? `${dollars(sum(known))} + ${plural(line.unpriced, "call")} without a price`
    : dollars(sum(known));
}

function showCosts() {
  const by = find("cost-by").value;
  const inUnit = unit();
  const lines = seen.money[by].map(newestDays);
  const days = newestDays({ days: seen.money.days }).days;
  const totals = days.map((_, place) => sum(lines.map((line) => line[inUnit][place])));
  const most = Math.max(...totals, 0);
  const chart = find("chart");
  chart.setAttribute(
    "aria-label",
    `Costs of the last ${days.length} days in ${inUnit}, at most ${amountOf(most, inUnit)} in a day. The table below has all figures.`,
  );
  const columns = days.map((day, place) => {
    const column = make("div", { class: "day", title: `${day}: ${amountOf(totals[place], inUnit)}` });
    lines.forEach((line, index) => {
      if (!(line[inUnit][place] > 0)) return;
      const part = make("span", { class: `s${index}` });
      part.style.height = `${(88 * line[inUnit][place]) / most}%`;
      column.append(part);
    });
    return column;
  });
  chart.replaceChildren(
    make("span", { class: "most" }, most ? `${amountOf(most, inUnit)} a day` : "nothing booked"),
    ...columns,
  );
  find("cost-legend").replaceChildren(
    make("li", { class: "chart-ends" }, make("span", {}, days[0]), make("span", {}, `${days.at(-1)} (UTC)`)),
    ...lines.map((line, index) =>
      make(
        "li",
        {},
        make("span", { class: `swatch s${index}` }),
        lineName(line, by),
        make("span", { class: "amount" }, lineTotal(line, inUnit)),
      ),
    ),
  );
  showCostTable(days, lines, by, inUnit, totals);
}

// The days since the first call, at least a week: a chart of one bar in a month says little.
function newestDays(line) {
  const { days, by_model: all } = seen.money;
  const first = days.findIndex((_, place) => all.some((each) => each.calls[place]));
  const from = first < 0 ? days.length - 7 : Math.min(first, days.length - 7);
  return Object.fromEntries(
    Object.entries(line).map(([name, value]) => [name, Array.isArray(value) ? value.slice(from) : value]),
  );
}

function showCostTable(days, lines, by, inUnit, totals) {
  const names = lines.map((line) => make("th", { scope: "col", class: "number" }, lineName(line, by)));
  const used = days
    .map((day, place) => [day, place])
    .filter(([, place]) => lines.some((line) => line.calls[place]));
  const body = used
    .reverse()
    .map(([day, place]) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, day),
        ...lines.map((line) =>
          make("td", { class: "number" }, line.calls[place] ? amountOf(line[inUnit][place], inUnit) : "–"),
        ),
        make("td", { class: "number" }, amountOf(totals[place], inUnit)),
      ),
    );
  const head = make(
    "tr",
    {},
    make("th", { scope: "col" }, "Day"),
    ...names,
    make("th", { scope: "col", class: "number" }, "All"),
  );
  find("cost-table").replaceChildren(make("thead", {}, head), make("tbody", {}, ...body));
}

// Caps

function capName(cap) {
  if (cap.scope === "session") {
    const found = [...seen.conversations.values()].find((each) => each.account === cap.whose);
    return `conversation ${found ? nameOf(found) : cap.whose.slice(8, 16)}`;
  }
  return cap.whose ? `${cap.whose}, ${SCOPES[cap.scope] ?? cap.scope}` : (SCOPES[cap.scope] ?? cap.scope);
}

function showCap(cap) {
  const say = (amount) => (cap.unit === "dollars" ? dollars(amount) : whole.format(amount));
  const used = cap.limit > 0 ? (cap.spent + cap.reserved) / cap.limit : 1;
  const level = used >= 1 ? "full" : used >= 0.8 ? "near" : "";
  const words = `${say(cap.spent)} spent${cap.reserved ? `, ${say(cap.reserved)} reserved` : ""}`;
  const bar = make("div", {
    class: "gauge thin",
    role: "img",
    "aria-label": `${words}, limit ${say(cap.limit)} ${cap.unit}`,
  });
  for (const part of ["spent", "reserved"]) {
    const piece = make("span", { class: part });
    piece.style.width = `${cap.limit > 0 ? Math.min(100, (100 * cap[part]) / cap.limit) : 100}%`;
    bar.append(piece);
  }
  const limit = cap.unit === "dollars" ? say(cap.limit) : `${say(cap.limit)} ${cap.unit}`;
  return make(
    "li",
    { class: level },
    make("div", { class: "names" }, make("span", {}, capName(cap)), make("span", {}, limit)),
    bar,
    make("p", { class: "figures" }, `${words}, ${percent(used)} used`),
  );
}

function showCaps() {
  const { caps, hidden_keys: hidden } = seen.money;
  find("caps").replaceChildren(...caps.map(showCap));
  find("caps-empty").hidden = caps.length > 0;
  find("caps-hidden").hidden = hidden === 0;
  find("caps-hidden").textContent = `${plural(hidden, "more key")}: ullage keys list shows all.`;
}

// Errors

function showErrors() {
  const failed = seen.requests.filter(isFailed).map((request) => ({
    number: request.number,
    at: request.at,
    title: failure(request),
    message: "",
    where: `${request.model}, request ${request.id}`,
  }));
  const refused = seen.refusals.map((refusal) => ({
    number: refusal.number,
    at: refusal.at,
    title: `${refusal.status}, ${KINDS[refusal.kind] ?? refusal.kind}`,
    message: refusal.message,
    where: `${refusal.path} from ${refusal.client}, request ${refusal.id}`,
  }));
  const all = [...failed, ...refused].sort((one, other) => other.number - one.number);
  const groups = [];
  for (const each of all) {
    const last = groups.at(-1);
    if (last && last.title === each.title && last.message === each.message) last.times += 1;
    else groups.push({ ...each, times: 1 });
  }
  find("errors").replaceChildren(
    ...groups
      .slice(0, MOST_ERRORS)
      .map((each) =>
        make(
          "li",
          {},
          make(
            "p",
            {},
            time(each.at),
            " ",
            make("b", {}, each.title),
            each.times > 1 ? `, ${whole.format(each.times)} times` : "",
          ),
          each.message ? make("p", {}, each.message) : null,
          make("p", { class: "where" }, each.where),
        ),
      ),
  );
  find("errors-empty").hidden = all.length > 0;
}

// Data

function takeNews(news) {
  for (const each of news.conversations) {
    seen.conversations.delete(each.id);
    seen.conversations.set(each.id, each); // the newest stands last
  }
  for (const id of [...seen.conversations.keys()].slice(0, -MOST_CONVERSATIONS))
    seen.conversations.delete(id);
  seen.requests = [...seen.requests, ...news.requests].slice(-MOST_SEEN);
  seen.refusals = [...seen.refusals, ...news.refusals].slice(-MOST_SEEN);
  seen.totals = news.totals;
  seen.number = news.number;
}

function showMoney() {
  showTiles();
  showCosts();
  showCaps();
}

function showState(state) {
  seen.conversations.clear();
  seen.requests = [];
  seen.refusals = [];
  seen.reasons = state.reasons;
  seen.money = state.money;
  seen.running = state.running;
  takeNews(state);
  const started = new Date(state.started * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
  find("version").textContent = `${state.version}, since ${started}`;
  find("logout").hidden = !state.has_login;
  find("login").hidden = true;
  find("main").hidden = false;
  showConversations();
  showRunning();
  showRequests();
  showErrors();
  showMoney();
}

function showLink(state, words) {
  const link = find("link");
  link.className = `link ${state}`;
  if (link.textContent !== words) link.textContent = words;
}

function showLogin() {
  stream?.close();
  showLink("", "Logged out");
  find("main").hidden = true;
  find("logout").hidden = true;
  find("login").hidden = false;
  find("key").focus();
}

function showNotice(words) {
  find("notice").textContent = words;
  find("notice").hidden = !words;
}

function loadLater() {
  showLink("lost", "Not connected, trying again");
  clearTimeout(retry);
  retry = setTimeout(load, RETRY);
}

async function load() {
  clearTimeout(retry);
  try {
    const answer = await fetch("/page/state");
    if (answer.status === 401) {
      showLogin();
      return;
    }
    if (answer.status === 403) {
      showNotice((await answer.json()).error.message);
      return;
    }
    const told = await answer.json();
    showNotice(answer.ok ? "" : told.error.message);
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    showState(told);
    listen();
  } catch {
    loadLater();
  }
}

function listen() {
  stream?.close();
  if (document.hidden) return;
  stream = new EventSource(`/page/events?after=${seen.number}`);
  stream.addEventListener("open", () => showLink("live", "Live"));
  stream.addEventListener("news", (event) => {
    const news = JSON.parse(event.data);
    takeNews(news);
    showTiles();
    showConversations();
    addRequests(news.requests);
    if (news.refusals.length || news.requests.some(isFailed)) showErrors();
  });
  stream.addEventListener("running", (event) => {
    seen.running = JSON.parse(event.data);
    showRunning();
    showTiles();
  });
  stream.addEventListener("money", (event) => {
    seen.money = JSON.parse(event.data);
    showMoney();
    showConversations();
  });
  stream.addEventListener("reset", load);
  stream.addEventListener("error", () => {
    stream.close();
    loadLater();
  });
}

// Actions

find("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  find("login-error").textContent = "";
  const headers = { "content-type": "application/json" };
  try {
    const answer = await fetch("/page/login", {
      method: "POST",
      headers,
      body: JSON.stringify({ key: find("key").value }),
    });
    if (answer.ok) {
      find("key").value = "";
      await load();
      find("main").focus();
    } else {
      find("login-error").textContent = (await answer.json()).error.message;
    }
  } catch {
    find("login-error").textContent = "The gateway does not answer. Is it still running?";
  }
});

find("logout").addEventListener("click", async () => {
  stream?.close();
  await fetch("/page/logout", { method: "POST" });
  location.reload();
});

// A hidden page does not listen: browsers allow few connections to one address.
document.addEventListener("visibilitychange", () => {
  if (find("main").hidden) return;
  if (document.hidden) stream?.close();
  else load();
});
find("requests-more").addEventListener("click", () => {
  shown.requests += PAGE_OF_REQUESTS;
  showRequests();
});
find("filter").addEventListener("change", () => {
  showRunning();
  showRequests();
});
find("unfilter").addEventListener("click", () => {
  shown.only = null;
  showRunning();
  showRequests();
  find("filter").focus();
});
find("conversations-more").addEventListener("click", () => {
  shown.allCards = !shown.allCards;
  showConversations();
});
find("cost-by").addEventListener("change", showCosts);
find("cost-unit").addEventListener("change", () => {
  shown.unitChosen = true;
  showCosts();
});

setInterval(showTimes, 1000);
legend();
load();
