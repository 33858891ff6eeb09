// The socket to the server: reconnects by itself, and keeps this page's name over a reload.
const KEY = "robo-rl-page";
const REPLACED = 4001; // a copy of this tab, which has its name, has connected
const SILENT_MS = 3000; // the app sends 20 views a second: without any for this time, the connection counts as lost
const GONE_MS = 15000; // without any for this time, another one is opened; a browser waits for minutes, or for ever

function pageName() {
  let name = sessionStorage.getItem(KEY);
  if (!name) {
    name = Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16).padStart(2, "0")).join("");
    sessionStorage.setItem(KEY, name);
  }
  return name;
}

export class Link {
  // facts: of the app as the page was loaded; another app, or one that asks for its token, loads the page anew.
  constructor({ onView, onPicture, onRefused, onState, facts }) {
    this.on = { onView, onPicture, onRefused, onState };
    this.facts = JSON.stringify(facts);
    this.wait = 250;
    this.open();
    setInterval(() => this.watch(), 250);
  }

  open() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/socket?page=${pageName()}`);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => { this.wait = 250; this.on.onState(true); };
    socket.onmessage = (event) => { this.hear(); this.receive(event.data); };
    socket.onclose = ({ code }) => {
      if (code === REPLACED) sessionStorage.removeItem(KEY); // go on as another page, which watches
      this.ended();
    };
    this.socket = socket;
    this.heard_ms = performance.now();
    this.silent = this.told = false; // told: a message has come; an app that starts has no view yet
  }

  hear() {
    this.heard_ms = performance.now();
    this.told = true;
    if (this.silent) { this.silent = false; this.on.onState(true); }
  }

  // Notice a network that is lost without a word: the socket stays open, and nothing comes.
  watch() {
    const quiet_ms = performance.now() - this.heard_ms;
    if (this.told && !this.silent && quiet_ms > SILENT_MS) { this.silent = true; this.on.onState(false); }
    if (quiet_ms < GONE_MS) return;
    this.socket.onopen = this.socket.onmessage = this.socket.onclose = null;
    this.socket.close();
    this.ended();
  }

  ended() {
    this.heard_ms = Infinity; // until the next socket
    this.on.onState(false);
    setTimeout(() => this.again(), this.wait);
    this.wait = Math.min(2 * this.wait, 3000);
  }

  // Connect again, once the app is there and still the same: it may have been restarted, with another token or robot.
  async again() {
    try {
      const answer = await fetch("api/facts", { signal: AbortSignal.timeout(5000) });
      if (answer.status === 401 || (answer.ok && JSON.stringify(await answer.json()) !== this.facts)) { location.reload(); return; }
    } catch { /* the app is not there yet */ }
    this.open();
  }

  receive(data) {
    if (typeof data !== "string") {
      this.on.onPicture(new Uint8Array(data, 0, 1)[0], new Blob([new Uint8Array(data, 1)], { type: "image/jpeg" }));
      return;
    }
    const message = JSON.parse(data);
    if (message.refused) this.on.onRefused(message.refused);
    else this.on.onView(message);
  }

  // Returns false when nothing was sent: without a connection, or while old messages wait to leave. To a silent app only
  // what stops the arm is sent, which may still reach it: any other request would come late.
  send(request) {
    const stops = ["stop", "release"].includes(request.kind) || (request.kind === "estop" && request.on);
    if (this.socket.readyState !== WebSocket.OPEN || (this.silent && !stops) || this.socket.bufferedAmount > 16384) return false;
    this.socket.send(JSON.stringify(request));
    return true;
  }
}
