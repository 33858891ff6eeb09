// Who controls the arm: the operator or a policy.
export class Policy {
  constructor(place, send) { this.place = place; this.send = send; this.key = ""; }

  show(view) { this.place.hidden = true; }
}
