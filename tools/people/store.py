"""What is known of pending items, and each change of it.

Every change is one statement that says from which state to which: of two answers at once the
first wins, whichever threads or processes they come from. All methods block.
"""

import json
import sqlite3
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from caesura.tools.people.database import INSERT, ITEM, MAX_BYTES, Database
from caesura.tools.people.owner import is_alive, new_owner
from caesura.tools.people.pending import UNSETTLED, NoAnswer, Pending, State


class Store:
    """The items of one user of a file, and those that nobody's run waits for any more.

    path: None keeps them in memory.
    """

    def __init__(
        self, path: Path | None, *, max_items: int = 1000, max_bytes: int = MAX_BYTES
    ) -> None:
        self.owner = new_owner()
        self._db = Database(path, max_bytes)
        self._max_items = max_items

    @property
    def trouble(self) -> str | None:
        """Why the items are in memory although there should be a file; None: all is well."""
        return self._db.trouble

    def claim(self, item: Pending, identity: str) -> Pending:
        """Keep an item that a run waits for, or return what is known of the same thing.

        An answer that no run has had is handed out, once. An item that nobody's run waits for is
        ours from now on: open, with this session and deadline. Raises NoAnswer where too many wait.
        """
        known = self._find(identity, item) if identity else None
        if known is not None:
            return known
        count = f'SELECT count(*) FROM items WHERE "state" IN ({_holes(UNSETTLED)})'
        if self._db.run(lambda db: db.execute(count, UNSETTLED).fetchone()[0]) >= self._max_items:
            raise NoAnswer("too many questions wait for people already: go on without an answer")
        values = {**_row(item), "identity": identity, "owner": self.owner, "taken": 0}
        self._db.run(lambda db: db.execute(INSERT, list(values.values())))
        return item

    def settle(
        self,
        item_id: str,
        state: State,
        *,
        answer: str | None = None,
        approved: bool | None = None,
        who: str = "",
        taken: bool = False,
        of: Collection[State] = UNSETTLED,
    ) -> Pending | None:
        """Bring an item that is in a state `of` these into another; None: it is in none of them.

        Another living user's open item stays as it is. taken: the run that waits has the answer.
        """
        change = (
            'UPDATE items SET "state" = ?, "answer" = ?, "approved" = ?, "who" = ?, "taken" = ?'
            f' WHERE "id" = ? AND "state" IN ({_holes(of)})'
            ' AND ("state" != \'open\' OR "owner" = ?) RETURNING *'
        )
        values = (state, answer, approved, who, int(taken), item_id, *of, self.owner)
        return self._one(change, values)

    def get(self, item_id: str) -> Pending | None:
        """The item of that id."""
        return self._one('SELECT * FROM items WHERE "id" = ?', (item_id,))

    def listed(self, states: Collection[State]) -> list[Pending]:
        """Items in these states, the oldest first; the open ones of other living users are not."""
        query = (
            f'SELECT * FROM items WHERE "state" IN ({_holes(states)})'
            ' AND ("state" != \'open\' OR "owner" = ?) ORDER BY "created", "id"'
        )
        return self._all(query, (*states, self.owner))

    def finish(self, session: str) -> None:
        """A session has ended: the answers that it had are not handed out again."""
        change = 'UPDATE items SET "taken" = 2 WHERE "session" = ? AND "taken" = 1'
        self._db.run(lambda db: db.execute(change, (session,)))

    def next_deadline(self) -> float | None:
        """When the next item expires that nobody's run waits for."""
        query = 'SELECT min("deadline") FROM items WHERE "state" = \'orphaned\''
        found = self._db.run(lambda db: db.execute(query).fetchone()[0])
        return None if found is None else float(found)

    def sweep(self, now: float, oldest: float) -> list[Pending]:
        """Find runs that are gone and deadlines that have passed; forget what is old.

        Settled items go that were created before `oldest`, and the oldest beyond the number that
        is kept. Return those that have changed.
        """
        changed = [item for owner in self._gone() for item in self._orphan(owner)]
        expire = (
            'UPDATE items SET "state" = \'expired\', "answer" = "default"'
            ' WHERE "state" = \'orphaned\' AND "deadline" <= ? RETURNING *'
        )
        changed += self._all(expire, (now,))
        settled = f'"state" NOT IN ({_holes(UNSETTLED)})'
        surplus = (
            f'DELETE FROM items WHERE {settled} AND ("created" < ? OR "id" NOT IN (SELECT "id"'
            f' FROM items WHERE {settled} ORDER BY "created" DESC LIMIT ?))'
        )
        values = (*UNSETTLED, oldest, *UNSETTLED, self._max_items)
        self._db.run(lambda db: db.execute(surplus, values))
        return changed

    def leave(self) -> list[Pending]:
        """Our runs are about to go: what they wait for can still be answered."""
        return self._orphan(self.owner)

    def close(self) -> None:
        """Close the file. The next use opens it again."""
        self._db.close()

    def _find(self, identity: str, item: Pending) -> Pending | None:
        return self._one(
            'UPDATE items SET "taken" = 1, "session" = ?, "owner" = ? WHERE "id" = (SELECT "id"'
            ' FROM items WHERE "identity" = ? AND "state" = \'answered\' AND "taken" = 0 LIMIT 1)'
            " RETURNING *",
            (item.session, self.owner, identity),
        ) or self._one(
            'UPDATE items SET "state" = \'open\', "owner" = ?, "session" = ?, "deadline" = ?'
            ' WHERE "id" = (SELECT "id" FROM items WHERE "identity" = ? AND "state" = \'orphaned\''
            " LIMIT 1) RETURNING *",
            (self.owner, item.session, item.deadline, identity),
        )

    def _gone(self) -> list[str]:
        """The other users of the file whose process has ended and who have left something."""
        query = 'SELECT DISTINCT "owner" FROM items WHERE "state" = \'open\' OR "taken" = 1'
        owners = self._db.run(lambda db: [row[0] for row in db.execute(query)])
        return [owner for owner in owners if owner != self.owner and not is_alive(owner)]

    def _orphan(self, owner: str) -> list[Pending]:
        # An answer to a question that died with its run is good for the run that asks again. An
        # approval is not: perhaps its call was made.
        again = (
            'UPDATE items SET "taken" = CASE "kind" WHEN \'question\' THEN 0 ELSE 2 END'
            ' WHERE "owner" = ? AND "taken" = 1'
        )
        self._db.run(lambda db: db.execute(again, (owner,)))
        # An approval without an identity can be given to no run any more.
        change = (
            'UPDATE items SET "state" = CASE WHEN "kind" = \'approval\' AND "identity" = \'\''
            " THEN 'cancelled' ELSE 'orphaned' END"
            ' WHERE "owner" = ? AND "state" = \'open\' RETURNING *'
        )
        return self._all(change, (owner,))

    def _one(self, statement: str, values: Iterable[Any]) -> Pending | None:
        found = self._all(statement, values)
        return found[0] if found else None

    def _all(self, statement: str, values: Iterable[Any]) -> list[Pending]:
        return self._db.run(lambda db: [_item(row) for row in db.execute(statement, tuple(values))])


def _row(item: Pending) -> dict[str, Any]:
    return {name: getattr(item, name) for name in ITEM} | {"options": json.dumps(item.options)}


def _item(row: sqlite3.Row) -> Pending:
    data = {name: row[name] for name in ITEM}
    data["options"] = tuple(json.loads(data["options"]))
    data["approved"] = None if data["approved"] is None else bool(data["approved"])
    return Pending(**data)


def _holes(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))
