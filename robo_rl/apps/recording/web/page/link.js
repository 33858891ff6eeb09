// The socket to the server: reconnects by itself, and keeps this page's name over a reload.
const KEY = "robo-rl-page";
const REPLACED = 4001; // a copy of this tab, which has its name, has connected

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
  }

  open() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/socket?page=${pageName()}`);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => { this.wait = 250; this.on.onState(true); };
    socket.onmessage = (event) => this.receive(event.data);
    socket.onclose = ({ code }) => {
      if (code === REPLACED) sessionStorage.removeItem(KEY); // go on as another page, which watches
      this.on.onState(false);
      setTimeout(() => this.again(), this.wait);
      this.wait = Math.min(2 * this.wait, 3000);
    };
    this.socket = socket;
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

  get connected() { return this.socket.readyState === WebSocket.OPEN; }

  // Returns false when nothing was sent: without a connection, or while old messages wait to leave.
  send(request) {
    if (!this.connected || this.socket.bufferedAmount > 16384) return false;
    this.socket.send(JSON.stringify(request));
    return true;
  }
}
