"""Q-learning: a replay memory, a target network that follows slowly, actions chosen without gradients, clipped gradients."""
import math
import random
from collections import deque, namedtuple

import torch
import torch.nn.functional as F
from torch import nn, optim

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))


class Pole:
    """A pole that falls over if it is not pushed."""

    def reset(self):
        self.x = [random.uniform(-0.05, 0.05) for _ in range(4)]
        return list(self.x)

    def step(self, action):
        x, v, angle, turn = self.x
        force = 10.0 if action == 1 else -10.0
        push = (force + 0.05 * turn * turn * math.sin(angle)) / 1.1
        accelerated = (9.8 * math.sin(angle) - math.cos(angle) * push) / (0.5 * (4 / 3 - 0.1 * math.cos(angle) ** 2 / 1.1))
        self.x = [x + 0.02 * v, v + 0.02 * push, angle + 0.02 * turn, turn + 0.02 * accelerated]
        return list(self.x), 1.0, abs(self.x[0]) > 2.4 or abs(self.x[2]) > 0.2


class DQN(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1, self.layer2, self.layer3 = nn.Linear(4, 32), nn.Linear(32, 32), nn.Linear(32, 2)

    def forward(self, x):
        return self.layer3(F.relu(self.layer2(F.relu(self.layer1(x)))))


def main():
    random.seed(0)
    torch.manual_seed(5)
    policy, target = DQN(), DQN()
    target.load_state_dict(policy.state_dict())
    policy_net, target_net = torch.compile(policy), torch.compile(target)
    optimizer = optim.AdamW(policy.parameters(), lr=1e-3, amsgrad=True, eps=1e-4)
    memory, steps, env = deque([], maxlen=500), 0, Pole()

    def select_action(state):
        if random.random() > 0.1 + 0.8 * math.exp(-steps / 100):
            with torch.no_grad():
                return policy_net(state).max(1).indices.view(1, 1)
        return torch.tensor([[random.randrange(2)]])

    def optimize():
        if len(memory) < 16:
            return
        batch = Transition(*zip(*random.sample(memory, 16)))
        mask = torch.tensor([s is not None for s in batch.next_state])
        values = policy_net(torch.cat(batch.state)).gather(1, torch.cat(batch.action))
        following = torch.zeros(16)
        with torch.no_grad():
            following[mask] = target_net(torch.cat([s for s in batch.next_state if s is not None])).max(1).values
        loss = nn.SmoothL1Loss()(values, (following * 0.99 + torch.cat(batch.reward)).unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(policy.parameters(), 100)
        optimizer.step()
        print(f"loss {steps} {loss.item():.9g}")

    for _ in range(6):
        state, done = torch.tensor([env.reset()]), False
        for _ in range(40):
            action = select_action(state)
            observed, reward, done = env.step(action.item())
            steps += 1
            following = None if done else torch.tensor([observed])
            memory.append(Transition(state, action, following, torch.tensor([reward])))
            state = following
            optimize()
            weights, slow = policy.state_dict(), target.state_dict()
            for key in weights:
                slow[key] = weights[key] * 0.05 + slow[key] * 0.95
            target.load_state_dict(slow)
            if done:
                break
        print("episode", steps)


if __name__ == "__main__":
    main()
