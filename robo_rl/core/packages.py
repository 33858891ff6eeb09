"""Packages that parts of robo-rl need, with the pip extra that installs them and their purpose."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import util
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # of a checkout: the folder of setup.cfg
OURS = ("robo_rl", "policies", "sim", "hardware")  # import packages of robo-rl


@dataclass(frozen=True)
class Package:
    """module: name to import. distribution: name to install. extra: the pip extra, None for the core."""

    module: str
    distribution: str
    extra: str | None
    purpose: str


PACKAGES = (
    Package("torch", "torch", None, "all networks"),
    Package("numpy", "numpy", None, "arrays"),
    Package("safetensors", "safetensors", None, "weights"),
    Package("hydra", "hydra-core", None, "settings of the verbs"),
    Package("omegaconf", "omegaconf", None, "settings of the verbs"),
    Package("yaml", "PyYAML", None, "settings of the verbs"),
    Package("tqdm", "tqdm", None, "progress bars"),
    Package("onnxruntime", "onnxruntime", "robot", "running exported bundles"),
    Package("cyclonedds", "cyclonedds", "dds", "ROS 2 compatible nodes without ROS"),
    Package("fastapi", "fastapi", "app", "the page of robo-rl record"),
    Package("uvicorn", "uvicorn", "app", "the page of robo-rl record"),
    Package("websockets", "websockets", "app", "the page of robo-rl record"),
    Package("rosbags", "rosbags", "dds", "ROS messages and recordings, without ROS"),
    Package("zarr", "zarr", "train", "zarr v2 replay buffers; needs Python 3.11"),
    Package("google_crc32c", "google-crc32c", "train", "checksums of datasets"),
    Package("numcodecs", "numcodecs", "train", "compression of datasets"),
    Package("diffusers", "diffusers", "train", "noise schedules of diffusion policies"),
    Package("tensorboard", "tensorboard", "train", "learning curves"),
    Package("pyarrow", "pyarrow", "formats", "datasets of LeRobot"),
    Package("h5py", "h5py", "formats", "datasets of robomimic"),
    Package("rerun", "rerun-sdk", "rerun", "exports for the Rerun viewer"),
    Package("wandb", "wandb", "wandb", "curves in Weights & Biases, logger=wandb"),
    Package("mlflow", "mlflow-skinny", "mlflow", "curves in MLflow, logger=mlflow"),
    Package("sqlalchemy", "SQLAlchemy", "mlflow", "MLflow without a server"),
    Package("ray", "ray", "ray", "fine-tuning with actors, launcher=ray"),
    Package("transformers", "transformers", "vla", "vision-language-action policies"),
    Package("peft", "peft", "lora", "adapters in pretrained vision-language models"),
    Package("huggingface_hub", "huggingface_hub", "hub", "push and pull"),
    Package("scipy", "scipy", "train", "intervals and tests of success rates"),
    Package("matplotlib", "matplotlib", "train", "plots of reports"),
    Package("jinja2", "jinja2", "train", "reports"),
    Package("rich", "rich", "train", "tables of results"),
    Package("av", "av", "train", "videos"),
    Package("cv2", "opencv-python-headless", "train", "JPEG images"),
    Package("onnx", "onnx", "train", "export"),
    Package("onnxscript", "onnxscript", "train", "export"),
    Package("gymnasium", "gymnasium", "sim", "Gymnasium environments"),
    Package("mujoco", "mujoco", "sim", "physics"),
    Package("metaworld", "metaworld", "sim", "MetaWorld tasks and their experts"),
    Package("gym_pusht", "gym-pusht", "sim", "Push-T"),
    Package("pybullet", "pybullet", "pybullet", "flying in PyBullet; needs Python below 3.12"),
    Package(
        "gymnasium_robotics",
        "gymnasium-robotics",
        "gymrobotics",
        "Fetch, Shadow and Adroit hands, kitchen, mazes",
    ),
    Package("robosuite", "robosuite", "robosuite", "robosuite tasks"),
    Package("envpool", "envpool", "envpool", "environments in C++"),
    Package("mujoco_warp", "mujoco-warp", "gpu", "physics on NVIDIA GPUs"),
    Package("warp", "warp-lang", "gpu", "physics on NVIDIA GPUs"),
    Package("rtde_control", "ur_rtde", "ur", "Universal Robots arms"),
    Package("xarm", "xarm-python-sdk", "xarm", "UFACTORY xArm"),
    Package("dynamixel_sdk", "dynamixel-sdk", "dynamixel", "leader arms of Dynamixel servos"),
    Package("scservo_sdk", "feetech-servo-sdk", "feetech", "leader arms of Feetech servos"),
    Package("cflib", "cflib", "crazyflie", "Crazyflie quadcopters"),
    Package("pymavlink", "pymavlink", "px4", "PX4 autopilots over MAVLink"),
)
_BY_MODULE = {package.module: package for package in PACKAGES}


def installed_version(package: Package) -> str | None:
    """Installed version; None if the package is not installed. Imports nothing."""
    if util.find_spec(package.module) is None:
        return None
    # None: another distribution owns the module, e.g. opencv-python
    return _distribution_version(package.distribution) or "unknown version"


def install_command(module: str, fallback: str | None) -> str:
    """Command that installs what `import module` needs. fallback: extra to name for modules outside the
    table.
    """
    package = _BY_MODULE.get(module.split(".")[0])
    return pip_install(package.extra if package is not None else fallback)


def pip_install(extra: str | None) -> str:
    """Command that installs an extra, or the core for None.

    `robo-rl[extra]` suits an installed robo-rl, from a wheel or from a checkout (`pip install .`,
    `make setup`): pip then reads the extras of the installed version and downloads only their packages. A
    checkout that is not installed is named by its path.
    """
    if installed():
        return f"pip install 'robo-rl[{extra}]'" if extra else "pip install robo-rl"
    return f"pip install -e '{ROOT}{f'[{extra}]' if extra else ''}'"


def installed() -> bool:
    """True if robo-rl itself is installed in this Python."""
    return _distribution_version("robo-rl") is not None


def _distribution_version(name: str) -> str | None:
    """Version of an installed distribution, or None."""
    from importlib import metadata  # takes a tenth of the time in which a robot's node starts

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
