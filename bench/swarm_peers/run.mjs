// One case of swarm.py with agent-swarm-kit, in a process of its own; swarming.py says what is measured and how.
//
//   node --expose-gc run.mjs turns "agent-swarm-kit" '{"turns": 100, "seconds": 60}'
//
// Each client has a `session`; a turn is its `complete`. Two agents, of which the default one answers. A name that
// ends in "files" leaves the library's own default, which keeps files in the folder that the process runs in;
// otherwise CC_PERSIST_ENABLED_BY_DEFAULT is false. An event is one of the application's, sent by `event` and heard
// by `listenEvent`, which pass through the same bus as `listenAgentEvent`.

import { addAgent, addCompletion, addSwarm, event, listenEvent, session, setConfig } from "agent-swarm-kit";

const STEP = 10;
const MOST_MB = 4000;
const WARM = 20;
const [what, name, given] = process.argv.slice(2);

setConfig({ CC_PERSIST_ENABLED_BY_DEFAULT: name.endsWith("files") });

const completion = addCompletion({
  completionName: "echo-completion",
  getCompletion: async ({ agentName, messages }) => ({
    agentName,
    content: `echo:${messages.at(-1).content}`,
    role: "assistant",
    mode: "user",
  }),
});
const agents = ["echo", "triage"].map((agentName) =>
  addAgent({ agentName, completion, prompt: "You repeat what you are told." }),
);
const swarm = addSwarm({ swarmName: "bench", agentList: agents, defaultAgent: agents[0] });

const seconds = () => performance.now() / 1000;
const megabytes = () => process.memoryUsage.rss() / 1e6;
const collect = () => globalThis.gc?.();

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

async function ask(talk, number) {
  const said = `This is question ${number} of this client.`;
  const answer = await talk.complete(said);
  if (answer !== `echo:${said}`) throw new Error(`the answer to '${said}' is '${answer}'`);
}

async function warmed() {
  const talk = session("somebody-else", swarm);
  for (let number = 0; number < WARM; number++) await ask(talk, number);
  collect();
}

async function turns({ turns, seconds: most }) {
  const medians = [];
  const sums = [];
  let why = "";
  await warmed();
  const talk = session("client", swarm);
  const until = seconds() + most;
  for (let first = 0; first < turns && !why; first += STEP) {
    const took = [];
    for (let number = first; number < first + STEP; number++) {
      const began = seconds();
      await ask(talk, number);
      took.push(seconds() - began);
    }
    medians.push(median(took));
    sums.push(took.reduce((sum, each) => sum + each, 0));
    if (seconds() > until) why = `${most} s`;
    else if (megabytes() > MOST_MB) why = `${MOST_MB / 1000} GB`;
  }
  return { medians, sums, why, megabytes: megabytes() };
}

async function clients({ clients, turns }) {
  await warmed();
  const client = async (id) => {
    const talk = session(id, swarm);
    for (let number = 0; number < turns; number++) await ask(talk, number);
  };
  const began = seconds();
  await Promise.all(Array.from({ length: clients }, (_, number) => client(`client-${number}`)));
  return { seconds: seconds() - began };
}

async function idle({ sessions }) {
  await warmed();
  const before = megabytes();
  let began = seconds();
  const talks = Array.from({ length: sessions }, (_, number) => session(`client-${number}`, swarm));
  const opened = seconds() - began;
  collect();
  const afterOpening = megabytes();
  began = seconds();
  for (const [number, talk] of talks.entries()) await ask(talk, number);
  const asked = seconds() - began;
  collect();
  return {
    before,
    open_seconds: opened,
    open_megabytes: afterOpening,
    turn_seconds: asked,
    turn_megabytes: megabytes(),
  };
}

async function events({ listeners, events }) {
  const talk = session("client", swarm);
  await ask(talk, 0);
  let count = 0;
  let all = () => {};
  for (let number = 0; number < listeners; number++) {
    listenEvent("client", "news", () => {
      count += 1;
      if (count === listeners) all();
    });
  }
  const took = [];
  for (let number = 0; number < WARM + events; number++) {
    count = 0;
    const heard = new Promise((resolve) => (all = resolve));
    const began = seconds();
    await event("client", "news", { text: "hello" });
    await heard;
    if (number >= WARM) took.push(seconds() - began);
  }
  return { seconds: median(took) };
}

const cases = { turns, clients, idle, events };
console.log(JSON.stringify(await cases[what](JSON.parse(given))));
process.exit(0);
