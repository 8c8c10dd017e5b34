// A page that speaks the protocol by itself, with one mistake of those that people make: node mistakes.mjs MISTAKE URL
const [mistake, url] = process.argv.slice(2);
const is = (name) => mistake === name;
const CONFIG = "CONFIG:OBS=2;ACT=1;ENV_TYPE=MULTI;ENV_COUNT=2;VERSION=1;CHANNEL=SHARED;FEATURES=SEED,SEQ,TRUNC,ERROR;ACT_SPACE=BOX(-1:1)";
const envs = [0, 1].map((n) => ({ state: n + 1, x: 0, age: 0 }));

function random(env) { // a generator of 32 bits
  if (is("Math.random")) return Math.random();
  env.state = (Math.imul(env.state, 1664525) + 1013904223) >>> 0;
  return env.state / 2 ** 32;
}

function begin(env) {
  env.x = 2 * random(env) - 1;
  env.age = 0;
}

function number(x) {
  if (is("decimal comma")) return x.toLocaleString("de", { maximumFractionDigits: 6 });
  return String(x);
}

function answer(line) {
  const [requests, seq] = line.replace(/[ \t\r]/g, "").toUpperCase().split(";SEQ=");
  const rows = requests.split("||").map((row) => {
    const said = Object.fromEntries(row.split(";").map((field) => field.split("=")));
    if (!(said.ENV in envs)) throw new Error("no such env");
    const env = envs[said.ENV];
    let reward = 0;
    if (said.ACT === "RESET") {
      if (said.SEED !== undefined) env.state = Number(BigInt(said.SEED) & 0xffffffffn) ^ Number(BigInt(said.SEED) >> 32n);
      begin(env);
    } else {
      if (!/^[+-]?[\d.]+(e[+-]?\d+)?$/i.test(said.ACT)) throw new Error("no action");
      if (!is("ignores actions")) env.x += 0.1 * Number(said.ACT);
      env.age += 1;
      reward = -Math.abs(env.x);
    }
    const over = env.age >= 20;
    const done = is("true") ? over : Number(over);
    if (over && is("begins by itself")) begin(env);
    const x = is("NaN") && env.age === 3 ? undefined * 2 : env.x;
    const numbers = is("too many numbers") ? [x, env.age, 0] : [x, env.age];
    const id = is("from one") ? Number(said.ENV) + 1 : said.ENV;
    return `OBS=${numbers.map(number).join(",")};REW=${number(reward)};DONE=${done};ENV=${id}${over ? ";TRUNC=1" : ""}`;
  });
  return rows.join("||") + (seq && !is("no SEQ") ? `;SEQ=${seq}` : "");
}

function dial() {
  const socket = new WebSocket(url);
  let greeted = false;
  const greet = () => {
    greeted = true;
    socket.send(is("JSON") ? JSON.stringify({ obs: 2, act: 1 }) : CONFIG);
  };
  socket.onopen = () => {
    if (!is("late handshake")) greet();
  };
  socket.onmessage = ({ data }) => {
    if (!greeted) greet();
    if (data.trim() === "") return;
    let text;
    try {
      text = answer(data);
    } catch (error) {
      socket.send(`ERROR=${encodeURIComponent(error.message)}`);
      socket.close();
      return;
    }
    socket.send(is("binary") ? new TextEncoder().encode(text) : text);
    if (is("twice")) socket.send(text);
  };
  let over = false;
  const again = () => {
    if (!over && !(greeted && is("dials once"))) setTimeout(dial, 100);
    over = true;
  };
  socket.onclose = again;
  socket.onerror = again;
}

setInterval(() => {}, 1000); // a page stays, whatever its connection does
dial();
